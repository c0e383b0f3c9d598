"""The manifest of a prepared data set: its sources, sizes and baselines. Nothing in it depends on time or place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gptlite.storage.sealed import MANIFEST, SealedFolder

MIN_COMPRESSOR_BYTES = 1000  # for a shorter text, the results of gzip and xz are mostly headers

RuleName = Literal["document_hash", "tail_of_each_document", "tail_of_the_document", "val_source"]
SplitName = Literal["train", "val"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=1 << 48)]  # sums of larger ones would overflow
Positive = Annotated[int, Field(ge=1, le=1 << 48)]


@dataclass(frozen=True)
class SourceRecord:
    """One entry of data.source. bytes: of its text in UTF-8. sha256: of its files as they are on disk."""

    name: str
    files: Count
    bytes: Count
    sha256: Sha256
    python: str | None  # the version of the interpreter whose library it is


@dataclass(frozen=True)
class TokenizerRecord:
    """The tokenizer in the folder `tokenizer/`. A BPE may have fewer ids than requested."""

    kind: str
    fingerprint: Sha256
    vocab_size: Annotated[int, Field(ge=1, le=1 << 32)]
    requested_vocab_size: Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class SplitRule:
    """The rule by which the text was split."""

    rule: RuleName
    threshold: float  # hashes below it are validation; for tails, the fraction of each document
    val_fraction: float
    val_max_bytes: int


@dataclass(frozen=True)
class SplitRecord:
    """One split. bytes: of its text in UTF-8, without end-of-text tokens.

    half_length: the smallest length such that documents of at most so many tokens hold more than half of all tokens.
    """

    tokens: Positive
    bytes: Positive
    documents: Positive
    half_length: Positive


@dataclass(frozen=True)
class Baselines:
    """Bits per byte of a text, with its documents joined.

    unigram: entropy of single bytes. bigram: entropy of each byte given the one before it; the first byte by the
    unigram. Both use the counts of the text itself, and the counts cost nothing. gzip, xz: compressed size at level 9,
    headers included, of the first megabytes (`baselines.MAX_COMPRESSOR_BYTES`). ppmd: of these after the training text;
    None where there is none.
    """

    unigram: float
    gzip: float
    xz: float
    bigram: float
    ppmd: float | None = None


@dataclass(frozen=True)
class TextReport:
    """What the user of a text should know before training on it.

    copies: documents that equal an earlier one and were kept. longest: documents, the longest first: file and line, and
    bytes. used_ids: how many ids the training text has. val_only: the first characters that only the validation text
    has; n_val_only: how many there are. merges: the tokens that save most. forced_cuts: places where a text was cut
    although that may have changed ids. withheld: documents left out of training, because the validation text has them.
    """

    copies: Count
    longest: tuple[tuple[str, int], ...]
    used_ids: Count
    val_only: str
    n_val_only: Count
    merges: tuple[str, ...]
    forced_cuts: Count
    withheld: Count


@dataclass(frozen=True)
class Manifest:
    """The fields of the manifest beside the size and sha256 of each file."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    fingerprint: Sha256
    sources: tuple[SourceRecord, ...]
    encoding: str
    normalize: str
    tokenizer: TokenizerRecord
    start_id: Count  # sampling starts from it if the prompt is empty
    split_rule: SplitRule
    train: SplitRecord
    val: SplitRecord
    baselines: Baselines  # of the validation text
    report: TextReport

    @property
    def compressors_meaningful(self) -> bool:
        """Whether the validation text is long enough for the results of xz and gzip to be more than their headers."""
        return self.val.bytes >= MIN_COMPRESSOR_BYTES


_ADAPTER = TypeAdapter(Manifest)


def manifest_of(folder: SealedFolder) -> Manifest:
    """Return the manifest of a prepared folder. Raise Damaged where it has other fields or values."""
    try:
        manifest = _ADAPTER.validate_json(json.dumps(dict(folder.fields)))
    except ValidationError as error:
        first = error.errors()[0]
        raise folder.damaged(MANIFEST, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if manifest.start_id >= (ids := manifest.tokenizer.vocab_size):
        raise folder.damaged(MANIFEST, f"start_id is {manifest.start_id}, and the vocabulary has {ids} ids")
    return manifest

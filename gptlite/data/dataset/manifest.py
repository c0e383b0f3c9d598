"""The manifest of a prepared data set: its sources, sizes and baselines. Nothing in it depends on time or place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from pydantic import ConfigDict, TypeAdapter

MIN_COMPRESSOR_BYTES = 1000  # for a shorter text, the results of gzip and xz are mostly headers

RuleName = Literal["document_hash", "tail_of_each_document", "tail_of_the_document", "val_source"]
SplitName = Literal["train", "val"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)


@dataclass(frozen=True)
class SourceRecord:
    """One entry of data.source. bytes: of its text in UTF-8. sha256: of its files as they are on disk."""

    name: str
    files: int
    bytes: int
    sha256: str
    python: str | None  # the version of the interpreter whose library it is


@dataclass(frozen=True)
class TokenizerRecord:
    """The tokenizer in the folder `tokenizer/`. A BPE may have fewer ids than requested."""

    kind: str
    fingerprint: str
    vocab_size: int
    requested_vocab_size: int


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

    tokens: int
    bytes: int
    documents: int
    half_length: int


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

    copies: int
    longest: tuple[tuple[str, int], ...]
    used_ids: int
    val_only: str
    n_val_only: int
    merges: tuple[str, ...]
    forced_cuts: int
    withheld: int


@dataclass(frozen=True)
class Manifest:
    """The fields of the manifest beside the size and sha256 of each file."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    fingerprint: str
    sources: tuple[SourceRecord, ...]
    encoding: str
    normalize: str
    tokenizer: TokenizerRecord
    start_id: int  # sampling starts from it if the prompt is empty
    split_rule: SplitRule
    train: SplitRecord
    val: SplitRecord
    baselines: Baselines  # of the validation text
    report: TextReport

    @property
    def compressors_meaningful(self) -> bool:
        """Whether the validation text is long enough for the results of xz and gzip to be more than their headers."""
        return self.val.bytes >= MIN_COMPRESSOR_BYTES


MANIFEST_OF = TypeAdapter(Manifest)  # makes one of the fields of a prepared folder

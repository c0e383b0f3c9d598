"""manifest.json: the content of a prepared data set and its sources. Nothing in it depends on time or place."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, ConfigDict, Field, TypeAdapter, ValidationError

from gptlite.data.dataset.checked_files import damaged
from gptlite.data.dataset.shards import Count, Sha256, Shard, shard_name
from gptlite.data.preparing.baselines import MIN_COMPRESSOR_BYTES, Baselines
from gptlite.data.preparing.report import TextReport
from gptlite.data.preparing.split import SplitRule
from gptlite.errors import DataError
from gptlite.storage.files import storage_errors
from gptlite.storage.json_files import SEALED_VERSION, check_version, dump_sealed, read_sealed

FILE_NAME = "manifest.json"
UNSEALED_VERSION = 1
MAX_FILE_BYTES = 256 << 20  # of a tokenizer
PlainName = Annotated[str, Field(pattern="^[A-Za-z0-9_-][A-Za-z0-9._-]*$")]


@dataclass(frozen=True)
class SourceRecord:
    """One entry of data.source. bytes: of its text in UTF-8. sha256: of its files as they are on disk."""

    name: str
    files: Count
    bytes: Count
    sha256: Sha256
    python: str | None  # the version of the interpreter whose library it is


@dataclass(frozen=True)
class FileRecord:
    """Size and sha256 of a file."""

    bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
    sha256: Sha256


@dataclass(frozen=True)
class TokenizerRecord:
    """The tokenizer in the folder `tokenizer/` and its files by name. A BPE may have fewer ids than requested."""

    kind: str
    fingerprint: Sha256
    vocab_size: Annotated[int, Field(ge=1, le=1 << 32)]
    requested_vocab_size: Annotated[int, Field(ge=1)]
    files: Mapping[PlainName, FileRecord] | None = None  # version 1 does not list them


@dataclass(frozen=True)
class SplitRecord:
    """One split. bytes: of its text in UTF-8, without end-of-text tokens."""

    tokens: Annotated[Count, Field(ge=1)]
    bytes: Annotated[Count, Field(ge=1)]
    documents: Count
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    format_version: int
    fingerprint: Sha256
    sources: tuple[SourceRecord, ...]
    encoding: str
    normalize: str
    tokenizer: TokenizerRecord
    start_id: Count  # sampling starts from it if the prompt is empty
    split_rule: SplitRule
    train: SplitRecord
    val: SplitRecord
    # Of the validation text. Manifests written before the key was renamed have `reference`.
    baselines: Annotated[Baselines, Field(validation_alias=AliasChoices("baselines", "reference"))]
    report: TextReport | None = None  # older versions made none

    @property
    def compressors_meaningful(self) -> bool:
        """Whether the validation text is long enough for the results of xz and gzip to be more than their headers."""
        return self.val.bytes >= MIN_COMPRESSOR_BYTES

    @property
    def sealed(self) -> bool:
        """Whether the file has a seal. An older version wrote none; `prepare` adds it."""
        return self.format_version != UNSEALED_VERSION

    def to_json(self) -> bytes:
        """The bytes of the file, sealed."""
        fields = dataclasses.asdict(self)
        return dump_sealed(fields, fields.pop("format_version"))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder. DataError if it is missing, damaged or of another version."""
    path = folder / FILE_NAME
    try:
        fields = _read_fields(path)
        manifest = _adapter().validate_json(json.dumps(fields))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise damaged(path, f"{key}: {first['msg']}") from None
    except RecursionError:
        raise damaged(path, "it is nested too deeply") from None
    for contradiction in _contradictions(manifest):
        raise damaged(path, contradiction)
    return manifest


@cache
def _adapter() -> TypeAdapter[Manifest]:
    return TypeAdapter(Manifest)


def _read_fields(path: Path) -> dict[str, Any]:
    try:
        fields = read_sealed(path, DataError, unsealed=UNSEALED_VERSION)
        check_version(path, fields, UNSEALED_VERSION, SEALED_VERSION, error=DataError)
        return fields
    except DataError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno != errno.EFBIG:  # not the content, but the disk or permissions
            with storage_errors(path, "read"):
                raise cause from None
        advice = "To make it again, remove its folder and prepare the text."
        raise DataError([f"{problem.sentence} {advice}" for problem in error.problems], str(path)) from None


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Find what cannot be true of a folder that gptlite wrote, though each value alone could be."""
    ids = manifest.tokenizer.vocab_size
    if manifest.start_id >= ids:
        yield f"start_id is {manifest.start_id}, and the vocabulary has {ids} ids"
    for name, split in (("train", manifest.train), ("val", manifest.val)):
        names = [shard_name(name, number) for number in range(len(split.shards))]
        if [shard.file for shard in split.shards] != names:
            yield f"{name}.shards are not the files of this split in their order"
        for key in ("tokens", "documents"):
            stated, found = getattr(split, key), sum(getattr(shard, key) for shard in split.shards)
            if stated != found:
                yield f"{name}.{key} is {stated}, and its shards have {found}"

"""manifest.json: what a prepared folder holds, and where it came from. Nothing in it depends on time or place."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from gptlite.data.baselines import TELLING_BYTES, Baselines
from gptlite.data.shards import Shard
from gptlite.data.split import SplitRule
from gptlite.errors import DataError

FILE_NAME = "manifest.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class SourceRecord:
    """One entry of data.source; bytes count its text in UTF-8, sha256 its files as they lie on disk."""

    name: str
    files: int
    bytes: int
    sha256: str
    python: str | None  # version of the interpreter whose library it is


@dataclass(frozen=True)
class TokenizerRecord:
    """The tokenizer in the folder `tokenizer/`; a BPE may have found fewer merges than requested."""

    kind: str
    fingerprint: str
    vocab_size: int
    requested_vocab_size: int


@dataclass(frozen=True)
class SplitRecord:
    """One split; bytes are those of its text in UTF-8, in which end-of-text tokens stand for none."""

    tokens: int
    bytes: int
    documents: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Manifest:
    """All of manifest.json."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    format_version: int
    fingerprint: str
    sources: tuple[SourceRecord, ...]
    encoding: str
    normalize: str
    tokenizer: TokenizerRecord
    start_id: int  # sampling starts from it where the prompt is empty
    split_rule: SplitRule
    train: SplitRecord
    val: SplitRecord
    reference: Baselines  # of the validation text, in bits per byte

    @property
    def compressors_tell(self) -> bool:
        """Whether the validation text is so long that what xz and gzip make of it is more than their headers."""
        return self.val.bytes >= TELLING_BYTES

    def to_json(self) -> bytes:
        """The file's bytes."""
        return (json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n").encode()


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder; DataError when there is none, or one that this version cannot read."""
    path = folder / FILE_NAME
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path}: reading = {error.strerror}: a folder made by `gptlite prepare` is needed; prepare again"
        ) from error
    try:
        version = json.loads(text)["format_version"]
    except (ValueError, KeyError, TypeError):
        raise _damaged(path, "not a manifest") from None
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path}: format_version = {version}: this gptlite reads {FORMAT_VERSION}; "
            "prepare again, or use the version of gptlite that wrote it"
        )
    try:
        return TypeAdapter(Manifest).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _damaged(path, f"{where}: {first['msg']}") from None


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(f"{path}: content = {problem}: the prepared data is damaged; remove its folder and prepare again")

"""manifest.json: the content of a prepared data set and its sources. Nothing in it depends on time or place."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AliasChoices, ConfigDict, Field, TypeAdapter, ValidationError

from gptlite.data.baselines import MIN_COMPRESSOR_BYTES, Baselines
from gptlite.data.shards import Shard, damaged
from gptlite.data.split import SplitRule
from gptlite.errors import DataError
from gptlite.json_files import check_version, read_json

FILE_NAME = "manifest.json"
FORMAT_VERSION = 1


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
class SplitRecord:
    """One split. bytes: of its text in UTF-8, without end-of-text tokens."""

    tokens: int
    bytes: int
    documents: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Manifest:
    """The content of manifest.json."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)

    format_version: int
    fingerprint: str
    sources: tuple[SourceRecord, ...]
    encoding: str
    normalize: str
    tokenizer: TokenizerRecord
    start_id: int  # sampling starts from it if the prompt is empty
    split_rule: SplitRule
    train: SplitRecord
    val: SplitRecord
    # Of the validation text. Manifests written before the key was renamed have `reference`.
    baselines: Annotated[Baselines, Field(validation_alias=AliasChoices("baselines", "reference"))]

    @property
    def compressors_meaningful(self) -> bool:
        """Whether the validation text is long enough for the results of xz and gzip to be more than their headers."""
        return self.val.bytes >= MIN_COMPRESSOR_BYTES

    def to_json(self) -> bytes:
        """The bytes of the file."""
        return (json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n").encode()


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder. DataError if it is missing, damaged or of another version."""
    path = folder / FILE_NAME
    fields = read_json(path, DataError)
    check_version(path, fields, FORMAT_VERSION, error=DataError)
    try:
        return TypeAdapter(Manifest).validate_json(json.dumps(fields))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise damaged(path, f"{key}: {first['msg']}") from None

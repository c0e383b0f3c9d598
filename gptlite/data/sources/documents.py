"""From a file to documents: the whole file, its lines, its parts between separators, or the records of a dump.

kind        ending                one document is
text        any other             the file, or what `separator` cuts
lines       asked for             a line
json lines  .jsonl .ndjson        the record of a line
json        .json                 the only record, or each of a list
csv, tsv    .csv .tsv             a row, below a row of column names
"""

from __future__ import annotations

import codecs
import io
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, TypeAlias

from gptlite.config.schema import DataSection
from gptlite.data.sources import records
from gptlite.data.sources.charset import (
    HEAD_BYTES,
    decode,
    decode_pieces,
    in_normal_form,
    is_binary,
    is_wide,
    valid_utf8,
)
from gptlite.data.sources.compression import compression_of, open_plain, plain_suffix
from gptlite.data.sources.file_formats import kind_of
from gptlite.data.sources.named_datasets import Card
from gptlite.errors import DataError

Skipped: TypeAlias = Counter[tuple[str, str]]  # what has no text, by kind and, of files, name
Kind = Literal["text", "lines", "JSON Lines", "JSON", "CSV", "TSV"]
_KIND_BY_SUFFIX: dict[str, Kind] = {
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON",
    ".csv": "CSV",
    ".tsv": "TSV",
}
BINARY = "binary file"  # of no known format
_PIECE = 1 << 17  # bytes of a text that are read at a time


@dataclass(frozen=True)
class Document:
    """A text, in pieces that are read from the file one by one, so that it may be larger than memory.

    file: the path of its file within the source. pieces: in UTF-8, whole characters, to be taken once, and before the
    next document; none is empty. line: where in the file, if it has several documents. sha256: of the text in UTF-8,
    where it is known.
    """

    file: str
    pieces: Iterable[bytes]
    line: int | None = None
    sha256: str | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return b"".join(self.pieces).decode()


@dataclass(frozen=True)
class Reading:
    """The keys of `data:` that decide how files become documents."""

    encoding: str = "utf-8"
    errors: Literal["strict", "replace"] = "strict"
    normalize: str = "none"
    documents: Literal["files", "lines", "records"] | None = None
    field: str = "text"
    column: str = "text"
    separator: str | None = None

    @classmethod
    def of(cls, data: DataSection) -> Reading:
        """Take the keys of a config."""
        return cls(**{each.name: getattr(data, each.name) for each in fields(cls)})

    def of_files(self, files: Collection[Path]) -> Reading:
        """Decide `documents`: records where all files hold some; beside other files they are text."""
        if self.documents is not None:
            return self
        all_records = bool(files) and all(holds_records(path) for path in files)
        return replace(self, documents="records" if all_records else "files")

    def of_card(self, card: Card) -> Reading:
        """Return the same with what a named data set says of its documents, unless the config says anything of that."""
        given = self.documents is not None or self.separator is not None
        return self if given else replace(self, documents=card.documents, separator=card.separator)

    @property
    def fingerprint_fields(self) -> dict[str, str]:
        """The keys that make other documents than whole files, with their values."""
        if self.documents == "records":
            keys = ["documents", "field", "column"]
        else:
            keys = ["documents"] if self.documents == "lines" else ["separator"]
        found = {key: getattr(self, key) for key in keys + ["errors"] * (self.errors != "strict")}
        return {key: value for key, value in found.items() if value is not None}

    def kind(self, path: Path) -> Kind:
        """Return how a file is read. DataError for records that are asked for where the ending does not say which."""
        assert self.documents is not None, "of_files comes first"
        if self.documents == "files":
            return "text"
        if self.documents == "lines":
            return "lines"
        if not holds_records(path):
            raise DataError(
                f"data.documents is records, but the name does not say of which kind. Rename the file to end in "
                f"{', '.join(_KIND_BY_SUFFIX)}, or leave it out.",
                str(path),
            )
        return _KIND_BY_SUFFIX[plain_suffix(path)]

    @property
    def keeps_bytes(self) -> bool:
        """Whether valid text without a byte order mark has the same bytes in UTF-8."""
        return codecs.lookup(self.encoding).name == "utf-8" and self.normalize == "none" and self.errors == "strict"

    def decode(self, raw: bytes, where: str) -> str:
        """Return text from bytes. DataError as in `charset.decode`."""
        return decode(raw, self.encoding, self.normalize, where, errors=self.errors)


PLAIN = Reading()


def holds_records(path: Path) -> bool:
    """Tell whether the ending of a file is one of those for records."""
    return plain_suffix(path) in _KIND_BY_SUFFIX


def is_skipped(head: bytes, reading: Reading) -> bool:
    """Tell from its first bytes whether a file of a folder is skipped, without reading the rest, which may be large."""
    return is_binary(head, reading.encoding)


def read_documents(
    path: Path,
    name: str,
    reading: Reading,
    skipped: Skipped,
    *,
    skip_binary: bool,
    sha256: str | None = None,
) -> Iterator[Document]:
    """Yield the documents of a file, without empty ones, which are counted by kind.

    DataError for what cannot be read, with its line; it may come while the pieces of a document are taken.
    skip_binary: count a binary file instead of refusing it. sha256: of the bytes of the file, if it is known.
    """
    kind = reading.kind(path)
    raw = _read_pieces(path)
    head = next(raw, b"")
    if skip_binary and is_skipped(head[:HEAD_BYTES], reading):
        skipped[kind_of(head) or BINARY, name] += 1
        return
    pieces = _utf8(itertools.chain([head], raw), path, reading)
    if kind == "text" and reading.separator is None:
        if (first := next(pieces, None)) is None:
            skipped["empty file", name] += 1
        else:
            same = reading.keeps_bytes and compression_of(path) is None and not head.startswith(codecs.BOM_UTF8)
            yield Document(name, itertools.chain([first], pieces), sha256=sha256 if same else None)
        return
    what = {"text": "part", "lines": "line"}.get(kind, "record")
    for number, text in _records(kind, path, reading, pieces):
        if text.strip():
            normal = in_normal_form(text, reading.normalize)  # JSON escapes characters
            yield Document(name, (normal.encode(),), number)
        else:
            skipped[f"empty {what}", ""] += 1


def _read_pieces(path: Path) -> Iterator[bytes]:
    with open_plain(path) as file:
        yield from iter(lambda: file.read(_PIECE), b"")


def split_at(separator: str, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the parts between separators, as str.split gives them for the joined pieces.

    >>> list(split_at("---", ["a--", "-b"]))
    ['a', 'b']
    """
    left, waiting, size = "", list[str](), 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size > len(left):  # so that a long part is not searched again for each piece
            *parts, left = "".join([left, *waiting]).split(separator)
            yield from parts
            waiting, size = [], 0
    yield from "".join([left, *waiting]).split(separator)


def _utf8(pieces: Iterable[bytes], path: Path, reading: Reading) -> Iterator[bytes]:
    """Return the text of a file in UTF-8, in pieces of whole characters."""
    if reading.keeps_bytes:
        return valid_utf8(pieces, str(path))
    return map(str.encode, decode_pieces(pieces, reading.encoding, reading.normalize, str(path), errors=reading.errors))


def _lines(path: Path, reading: Reading) -> Iterator[str]:
    """Yield decoded lines with their ends: one at a time, unless the encoding has newlines inside characters."""
    with open_plain(path) as file:
        if is_wide(reading.encoding):
            yield from io.StringIO(reading.decode(file.read(), str(path)), newline="\n")
        else:
            for number, raw in enumerate(file, 1):
                yield reading.decode(raw, f"{path}:{number}")


def _records(kind: Kind, path: Path, reading: Reading, pieces: Iterator[bytes]) -> Iterator[tuple[int, str]]:
    """Return (number of the line or part, text) of each record of a file. pieces: its text."""
    if kind == "text":
        return enumerate(split_at(reading.separator or "", map(bytes.decode, pieces)), 1)
    lines = _lines(path, reading)
    if kind == "lines":
        return ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in enumerate(lines, 1))
    if kind == "CSV" or kind == "TSV":
        return records.rows(path, reading.column, lines, "," if kind == "CSV" else "\t")
    return (records.json_lines if kind == "JSON Lines" else records.json_records)(path, reading.field, lines)

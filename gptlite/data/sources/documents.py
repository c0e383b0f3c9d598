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
from typing import BinaryIO, Literal, TypeAlias

from gptlite.config.schema import DataSection
from gptlite.data.sources import records
from gptlite.data.sources.charset import (
    HEAD_BYTES,
    BinaryFile,
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
        """The keys of a config."""
        return cls(**{each.name: getattr(data, each.name) for each in fields(cls)})

    def of_files(self, files: Collection[Path]) -> Reading:
        """The same with `documents` decided: records where all files hold some; beside other files they are text."""
        if self.documents is not None:
            return self
        all_records = bool(files) and all(holds_records(path) for path in files)
        return replace(self, documents="records" if all_records else "files")

    def of_card(self, card: Card) -> Reading:
        """The same with what a named data set says of its documents, unless the config says anything of that."""
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
        """Text from bytes. DataError as in `charset.decode`."""
        return decode(raw, self.encoding, self.normalize, where, errors=self.errors)


PLAIN = Reading()


def holds_records(path: Path) -> bool:
    """Whether the ending of a file is one of those for records."""
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
    if kind == "text":
        yield from _texts(path, name, reading, skipped, skip_binary=skip_binary, sha256=sha256)
        return
    with open_plain(path) as file:
        head = file.read(HEAD_BYTES)
        if skip_binary and is_skipped(head, reading):
            skipped[kind_of(head) or BINARY, name] += 1
            return
        for line, text in _records(kind, path, reading, _lines(path, reading, head, file)):
            if text.strip():
                normal = in_normal_form(text, reading.normalize)  # JSON escapes characters
                yield Document(name, (normal.encode(),), line)
            else:
                skipped["empty line" if kind == "lines" else "empty record", ""] += 1


def _texts(
    path: Path, name: str, reading: Reading, skipped: Skipped, *, skip_binary: bool, sha256: str | None
) -> Iterator[Document]:
    """The whole text of a file, or what the separator cuts it into."""
    raw = _read_pieces(path)
    first = next(raw, b"")
    if skip_binary and _is_binary(path, reading, first):
        skipped[kind_of(first) or BINARY, name] += 1
        return
    raw = itertools.chain([first], raw)
    if reading.separator is None:
        pieces = valid_utf8(raw, str(path)) if reading.keeps_bytes else map(str.encode, _decode(raw, path, reading))
        if (piece := next(pieces, None)) is None:
            skipped["empty file", name] += 1
        else:
            same = reading.keeps_bytes and compression_of(path) is None and not first.startswith(codecs.BOM_UTF8)
            yield Document(name, itertools.chain([piece], pieces), sha256=sha256 if same else None)
        return
    number = 0
    for number, part in enumerate(split_at(reading.separator, _decode(raw, path, reading)), 1):
        if begun := _read_until_text(part):
            yield Document(name, map(str.encode, itertools.chain([begun], part)), number)
        else:
            skipped["empty part", ""] += 1
    if number == 0:
        skipped["empty file", name] += 1


def _read_pieces(path: Path) -> Iterator[bytes]:
    with open_plain(path) as file:
        yield from iter(lambda: file.read(_PIECE), b"")


def _decode(pieces: Iterable[bytes], path: Path, reading: Reading) -> Iterator[str]:
    return decode_pieces(pieces, reading.encoding, reading.normalize, str(path), errors=reading.errors)


def _is_binary(path: Path, reading: Reading, first: bytes) -> bool:
    """Whether a file has NUL anywhere, which has to be known before its first piece is used as text."""
    if is_skipped(first[:HEAD_BYTES], reading):
        return True
    if is_wide(reading.encoding):
        try:
            for _ in _decode(_read_pieces(path), path, reading):
                pass
        except BinaryFile:
            return True
        return False
    rest = _read_pieces(path) if len(first) == _PIECE else [first]
    return any(b"\0" in piece for piece in rest) and is_binary(first, reading.encoding, has_nul=True)


def split_at(separator: str, pieces: Iterable[str]) -> Iterator[Iterator[str]]:
    """The parts between separators, as str.split gives them for the joined pieces. Each is in pieces, too.

    A part is to be taken before the next one. There are none if there are no pieces.

    >>> [list(part) for part in split_at("---", ["a--", "-b"])]
    [['a'], ['b']]
    """
    source = iter(pieces)
    text, at, more = next(source, None), 0, True

    def part() -> Iterator[str]:
        nonlocal text, at, more
        assert text is not None
        while (end := text.find(separator, at)) < 0:
            ready = max(at, len(text) - len(separator) + 1)  # from there, a separator may begin
            if ready > at:
                yield text[at:ready]
            following = next(source, None)
            text, at = text[ready:] + (following or ""), 0
            if following is None:
                more = False
                if text:
                    yield text
                return
        if end > at:
            yield text[at:end]
        at = end + len(separator)

    while text is not None and more:
        current = part()
        yield current
        for _ in current:  # what was not taken
            pass


def _read_until_text(pieces: Iterator[str]) -> str:
    """The first pieces, joined, up to one that is more than white space; empty if there is none."""
    begun: list[str] = []
    for piece in pieces:
        begun.append(piece)
        if piece.strip():
            return "".join(begun)
    return ""


def _lines(path: Path, reading: Reading, head: bytes, file: BinaryIO) -> Iterator[str]:
    """Decoded lines with their ends: one at a time, unless the encoding has newlines inside characters."""
    if is_wide(reading.encoding):
        yield from io.StringIO(reading.decode(head + file.read(), str(path)), newline="\n")
        return
    begun, lines = head, iter(file)
    if not head.endswith(b"\n"):
        begun += next(lines, b"")
    for number, raw in enumerate(itertools.chain(io.BytesIO(begun), lines), 1):
        yield reading.decode(raw, f"{path}:{number}")


def _records(kind: Kind, path: Path, reading: Reading, lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    """(number of the line, text) of each record of a file."""
    if kind == "lines":
        return ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in enumerate(lines, 1))
    if kind == "CSV" or kind == "TSV":
        return records.rows(path, reading.column, lines, "," if kind == "CSV" else "\t")
    return (records.json_lines if kind == "JSON Lines" else records.json_records)(path, reading.field, lines)

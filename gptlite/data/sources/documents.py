"""From a file to documents: the whole file, its lines, its parts between separators, or its records.

A folder of nothing but .jsonl, .ndjson, .json, .csv and .tsv, or a file of these, is read as records. `reading` is the
section `data` of the config, whose keys decide how files become documents.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from gptlite.config.schema import DataSection
from gptlite.config.yaml import shown
from gptlite.data.sources import records
from gptlite.data.sources.charset import HEAD_BYTES, decode_pieces, in_normal_form, is_binary
from gptlite.data.sources.file_formats import format_of, open_plain, plain_suffix
from gptlite.data.sources.named_datasets import Card
from gptlite.errors import DataError
from gptlite.formatting import and_more, counted

Skipped: TypeAlias = Counter[tuple[str, str]]  # what has no text, by kind and, of files, name
_Reader: TypeAlias = Callable[[Path, str, Iterable[str]], Iterator[tuple[int, str]]]
# By ending: the key that names the text of a record, and what reads records from the lines of a file.
RECORDS: dict[str, tuple[Literal["field", "column"], _Reader]] = {
    ".jsonl": ("field", records.json_lines),
    ".ndjson": ("field", records.json_lines),
    ".json": ("field", records.json_records),
    ".csv": ("column", partial(records.rows, delimiter=",")),
    ".tsv": ("column", partial(records.rows, delimiter="\t")),
}
_NAMED = 3  # of the files of a kind that are skipped
_SEVERAL, _SHORT = 100, 40  # lines, and characters of each: a list, such as one of names
_PIECE = 1 << 17  # bytes of a text that are read at a time


@dataclass(frozen=True)
class Document:
    """A text, in pieces that are read from the file one by one, so that it may be larger than memory.

    file: the path of its file within the source. pieces: in UTF-8, whole characters, to be taken once, and before the
    next document; none is empty. line: where in the file, if it has several documents.
    """

    file: str
    pieces: Iterable[bytes]
    line: int | None = None

    @property
    def text(self) -> str:
        """All of it."""
        return b"".join(self.pieces).decode()


def with_documents(reading: DataSection, files: Collection[Path]) -> DataSection:
    """Decide `data.documents`: records where all files hold some; beside other files they are text."""
    if reading.documents is not None:
        return reading
    all_records = bool(files) and all(holds_records(path) for path in files)
    return reading.model_copy(update={"documents": "records" if all_records else "files"})


def with_card(reading: DataSection, card: Card) -> DataSection:
    """Return the same with what a named data set says of its documents, unless the config says anything of that."""
    given = reading.documents is not None or reading.separator is not None
    return reading if given else reading.model_copy(update=card.reading)


def fingerprint_fields(reading: DataSection) -> dict[str, str]:
    """Return the keys that make other documents than whole files, with their values."""
    if reading.documents == "records":
        keys = ["documents", "field", "column"]
    else:
        keys = ["documents"] if reading.documents == "lines" else ["separator"]
    found = {key: getattr(reading, key) for key in keys + ["errors"] * (reading.errors != "strict")}
    return {key: value for key, value in found.items() if value is not None}


def holds_records(path: Path) -> bool:
    """Tell whether the ending of a file is one of those for records."""
    return plain_suffix(path) in RECORDS


def is_skipped(head: bytes, reading: DataSection) -> bool:
    """Tell from its first bytes whether a file of a folder is skipped, without reading the rest, which may be large."""
    return format_of(head) is not None or is_binary(head, reading.encoding)


def is_text_file(path: Path, reading: DataSection) -> bool:
    """Tell whether a file of a folder is read. DataError as `open_plain`."""
    with open_plain(path) as file:
        return not is_skipped(file.read(HEAD_BYTES), reading)


def read_documents(
    path: Path, name: str, reading: DataSection, skipped: Skipped, *, skip_binary: bool
) -> Iterator[Document]:
    """Yield the documents of a file, without empty ones, which are counted by kind.

    DataError for what cannot be read, with its line; it may come while the pieces of a document are taken.
    skip_binary: count a binary file instead of refusing it.
    """
    if reading.documents == "records" and not holds_records(path):
        raise DataError(
            f"data.documents is records, but the name does not say of which kind. Rename the file to end in "
            f"{', '.join(RECORDS)}, or leave it out.",
            str(path),
        )
    raw = _read_pieces(path)
    head = next(raw, b"")
    if skip_binary and is_skipped(head[:HEAD_BYTES], reading):
        known = format_of(head)
        skipped[known.partition(" ")[2] if known else "binary file", name] += 1
        return
    pieces = itertools.chain([head], raw)
    texts = decode_pieces(pieces, reading.encoding, reading.normalize, str(path), errors=reading.errors)
    if reading.documents == "files" and reading.separator is None:
        if (first := next(texts, None)) is None:
            skipped["empty file", name] += 1
        else:
            yield Document(name, map(str.encode, itertools.chain([first], texts)))
        return
    what = {"files": "part", "lines": "line"}.get(reading.documents or "", "record")
    for number, text in _split(texts, path, reading):
        if text.strip():
            normal = in_normal_form(text, reading.normalize)  # JSON escapes characters
            yield Document(name, (normal.encode(),), number)
        else:
            skipped[f"empty {what}", ""] += 1


def _read_pieces(path: Path) -> Iterator[bytes]:
    with open_plain(path) as file:
        yield from iter(lambda: file.read(_PIECE), b"")


def _split(texts: Iterator[str], path: Path, reading: DataSection) -> Iterator[tuple[int, str]]:
    """Return (number of the line or part, text) of each document of a file."""
    if reading.documents == "files":
        return enumerate(split_at(reading.separator or "", texts), 1)
    if reading.documents == "lines":
        return ((number, line.removesuffix("\r")) for number, line in enumerate(split_at("\n", texts), 1))
    key, read = RECORDS[plain_suffix(path)]
    return read(path, getattr(reading, key), (f"{line}\n" for line in split_at("\n", texts)))


def split_at(separator: str, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the parts between separators, as str.split gives them for the joined pieces, but no empty last one.

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
    *parts, left = "".join([left, *waiting]).split(separator)
    yield from [*parts, left] if left else parts


def describe_skipped(skipped: Skipped) -> str:
    """Return a remark such as " (skipped: 2 binary files: a.png, b.zip; 3 empty lines)"; empty if nothing was."""
    parts = []
    for kind, group in itertools.groupby(sorted(skipped), key=lambda key: key[0]):
        keys = list(group)
        names = [shown(name) for _, name in keys if name]
        count = counted(sum(skipped[key] for key in keys), kind)
        parts.append(f"{count}: {and_more(names, _NAMED)}" if names else count)
    return f" (skipped: {'; '.join(parts)})" if parts else ""


def describe_reading(files: Sequence[Path], reading: DataSection, *, asked: str | None) -> Iterator[str]:
    """Say what is not obvious of how a text was understood, and which key changes it. asked: data.documents as set."""
    if reading.documents == "records":
        keys = sorted({RECORDS[plain_suffix(path)][0] for path in files})
        places = " or ".join(f"the {key} {getattr(reading, key)} (data.{key})" for key in keys)
        yield (
            f"each record is a document, with its text in {places}; use data.documents=files to train on the file as "
            "it is"
        )
        return
    for key in ("field", "column"):
        if (value := getattr(reading, key)) != "text":
            yield f"warning: data.{key} is {value}, which has no effect: the text is not read as records"
    if reading.documents == "lines":
        yield "each line is a document"
    elif reading.separator is not None:
        yield "each part between separators is a document"
    elif asked is None:
        yield from _doubts(files, reading)


def _doubts(files: Sequence[Path], reading: DataSection) -> Iterator[str]:
    """Name what was taken as text and may be something else."""
    if dumps := [path.name for path in files if holds_records(path)]:
        yield (
            f"warning: {and_more(dumps, 2)} may hold records, but beside other files each is text. To train on the "
            "texts in records, choose only files that hold some."
        )
    if len(files) != 1:
        return
    head = next(_read_pieces(files[0]), b"")[:HEAD_BYTES]
    lines = [line.strip() for line in head.decode(reading.encoding, "replace").split("\n")[:-1]]
    if len(lines) >= _SEVERAL and all(0 < len(line) <= _SHORT for line in lines):
        yield (
            f"{files[0].name} is one document of many short lines. If each line is a text of its own, such as a name, "
            "use data.documents=lines"
        )

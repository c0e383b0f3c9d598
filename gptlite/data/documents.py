"""From a file to documents: the whole file, its lines, its parts between separators, or the records of a dump.

kind        ending                one document is
text        any other             the file, or what `separator` cuts
lines       asked for             a line
json lines  .jsonl .ndjson        the record of a line
json        .json                 the only record, or each of a list
csv, tsv    .csv .tsv             a row, below a row of column names
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from gptlite.config.schema import DataSection
from gptlite.data.charset import HEAD_BYTES, BinaryFile, check_text, decode, in_normal_form, is_binary, is_wide
from gptlite.data.compression import open_plain, plain_suffix
from gptlite.errors import DataError
from gptlite.formatting import and_more, counted

Kind = Literal["text", "lines", "JSON Lines", "JSON", "CSV", "TSV"]
_KIND_BY_SUFFIX: dict[str, Kind] = {
    ".jsonl": "JSON Lines",
    ".ndjson": "JSON Lines",
    ".json": "JSON",
    ".csv": "CSV",
    ".tsv": "TSV",
}
_SHOWN = 8  # fields of a record that an error names


@dataclass(frozen=True)
class Document:
    """A text; `file` is the path of its file within the source, `line` says where in it, if there are several."""

    file: str
    text: str
    line: int | None = None


@dataclass(frozen=True)
class Reading:
    """How files become documents: the keys of `data:` that decide it."""

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

    @property
    def more_than_text(self) -> dict[str, str]:
        """What makes other documents than whole files would be, by key."""
        if self.documents == "records":
            keys = ["documents", "field", "column"]
        else:
            keys = ["documents"] if self.documents == "lines" else ["separator"]
        found = {key: getattr(self, key) for key in keys + ["errors"] * (self.errors != "strict")}
        return {key: value for key, value in found.items() if value is not None}

    def kind(self, path: Path) -> Kind:
        """How a file is read. DataError for records that are asked for where the ending does not say which."""
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

    def decode(self, raw: bytes, where: str) -> str:
        """Text from bytes. DataError as in `charset.decode`."""
        return decode(raw, self.encoding, self.normalize, where, errors=self.errors)


PLAIN = Reading()


def holds_records(path: Path) -> bool:
    """Whether the ending of a file is one of those for records."""
    return plain_suffix(path) in _KIND_BY_SUFFIX


def read_documents(
    path: Path, name: str, reading: Reading, skipped: Counter[str], *, skip_binary: bool
) -> Iterator[Document]:
    """Yield the documents of a file, without empty ones, which are counted by kind.

    DataError for what cannot be read, with its line. skip_binary: count a binary file instead of refusing it.
    """
    kind = reading.kind(path)
    with open_plain(path) as file:
        head = file.read(HEAD_BYTES)
        if skip_binary and is_binary(head, reading.encoding):  # without reading the rest, which may be large
            skipped["binary file"] += 1
            return
        if kind == "text":
            try:
                text = reading.decode(head + file.read(), str(path))
            except BinaryFile:
                if not skip_binary:
                    raise
                skipped["binary file"] += 1
                return
            yield from _texts(text, name, reading, skipped)
            return
        for line, text in _records(kind, path, reading, _lines(path, reading, head, file)):
            if text.strip():
                yield Document(name, in_normal_form(text, reading.normalize), line)  # JSON escapes characters
            else:
                skipped["empty line" if kind == "lines" else "empty record"] += 1


def _texts(text: str, name: str, reading: Reading, skipped: Counter[str]) -> Iterator[Document]:
    """The whole text, or what the separator cuts it into."""
    if not text:
        skipped["empty file"] += 1
        return
    if reading.separator is None:
        yield Document(name, text)
        return
    for number, part in enumerate(text.split(reading.separator), 1):
        if part.strip():
            yield Document(name, part, number)
        else:
            skipped["empty part"] += 1


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
        yield from ((number, line.removesuffix("\n").removesuffix("\r")) for number, line in enumerate(lines, 1))
    elif kind == "CSV" or kind == "TSV":
        yield from _rows(path, reading.column, lines, "," if kind == "CSV" else "\t")
    elif kind == "JSON Lines":
        for number, line in enumerate(lines, 1):
            if line.strip():
                where = f"{path}:{number}"
                yield number, _text_of(_parse(line, where), reading.field, where)
    else:
        found = _parse("".join(lines), str(path))
        for number, record in enumerate(found if isinstance(found, list) else [found], 1):
            yield number, _text_of(record, reading.field, f"{path}, record {number}")


def _rows(path: Path, column: str, lines: Iterator[str], delimiter: str) -> Iterator[tuple[int, str]]:
    csv.field_size_limit(sys.maxsize)  # of the whole process; its default refuses a long text
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        names = next(rows, [])
        if names.count(column) != 1:
            found = f"The first row names {and_more(names, _SHOWN)}" if names else "The file is empty"
            raise DataError(f"there is no single column {column}. {found}; set data.column to one of them.", str(path))
        at = names.index(column)
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"the row has {counted(len(row), 'value')}, and the first row names "
                    f"{counted(len(names), 'column')}. Correct the row.",
                    f"{path}:{rows.line_num}",
                )
            yield rows.line_num, row[at]
    except csv.Error as error:
        raise DataError(f"the row is not valid ({error}). Correct it.", f"{path}:{rows.line_num}") from None


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"this is not valid JSON ({error.msg} at character {error.pos}). Correct it, or set data.documents to "
            "files to take the file as plain text.",
            where,
        ) from None
    except (RecursionError, ValueError):  # a number of thousands of digits
        raise DataError("this JSON is nested too deeply or has too long a number. Correct it.", where) from None


def _text_of(record: Any, field: str, where: str) -> str:
    """The text of a record: the record if it is a string, its field, or its messages as lines of `role: content`."""
    if isinstance(record, str):
        return check_text(record, where)
    if isinstance(record, dict) and field == "text" and "text" not in record and "messages" in record:
        return check_text(_conversation(record["messages"], where), where)
    found, reached = record, ""
    for key in field.split("."):
        if not isinstance(found, dict) or key not in found:
            has = f"{f'its {reached}' if reached else 'it'} {_contents(found)}"
            raise DataError(f"the record has no field {field}: {has}. Set data.field to the one with the text.", where)
        found, reached = found[key], f"{reached}.{key}".removeprefix(".")
    if found is None:
        return ""
    if not isinstance(found, str):
        raise DataError(f"the field {field} is {_type_name(found)}, not a text. Set data.field to another.", where)
    return check_text(found, where)


def _conversation(messages: Any, where: str) -> str:
    lines = []
    for message in messages if isinstance(messages, list) else [messages]:
        role, content = (message.get(key) if isinstance(message, dict) else None for key in ("role", "content"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise DataError(
                "`messages` is not a list of objects with role and content, each a text. Correct it, or set "
                "data.field to another field.",
                where,
            )
        lines.append(f"{role}: {content}\n")
    return "".join(lines)


def _contents(value: Any) -> str:
    if not isinstance(value, dict):
        return f"is {_type_name(value)}"
    return f"has the fields {and_more(list(value), _SHOWN)}" if value else "is empty"


def _type_name(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), "a text")

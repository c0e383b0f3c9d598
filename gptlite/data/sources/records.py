"""The texts in records: rows of CSV and TSV, objects of JSON and JSON Lines. Each has its line, or its number."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gptlite.data.sources.charset import check_text
from gptlite.errors import DataError
from gptlite.formatting import and_more, counted

_NAMED = 8  # fields of a record that an error names
_LONG = 40  # characters of a value that an error shows


def json_lines(path: Path, field: str, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the record of each line that is not blank. DataError where it is not JSON or has no such text."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}:{number}"
            yield number, _text_of(_parse(line, where), field, where)


def json_records(path: Path, field: str, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the only record of a file, or each of a list. DataError as for `json_lines`."""
    found = _parse("".join(lines), str(path))
    for number, record in enumerate(found if isinstance(found, list) else [found], 1):
        yield number, _text_of(record, field, f"{path}, record {number}")


def rows(path: Path, column: str, lines: Iterable[str], *, delimiter: str) -> Iterator[tuple[int, str]]:
    """Yield the values of a column. DataError where the first row does not name it once or a row has another length."""
    csv.field_size_limit(sys.maxsize)  # of the whole process; its default refuses a long text
    table = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        names = next(table, [])
        if names.count(column) != 1:
            found = f"The first row names {and_more(names, _NAMED)}" if names else "The file is empty"
            raise DataError(f"there is no single column {column}. {found}; set data.column to one of them.", str(path))
        at = names.index(column)
        for row in table:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"the row has {counted(len(row), 'value')}, and the first row names "
                    f"{counted(len(names), 'column')}. Correct the row.",
                    f"{path}:{table.line_num}",
                )
            yield table.line_num, row[at]
    except csv.Error as error:
        raise DataError(f"the row is not valid ({error}). Correct it.", f"{path}:{table.line_num}") from None


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON, nested too deeply, or a number of thousands of digits
        advice = "Correct it, or use data.documents=files to take the file as plain text."
        reason = f"{error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else error
        raise DataError(f"this is not valid JSON ({reason}). {advice}", where) from None


def _text_of(record: Any, field: str, where: str) -> str:
    """Return the text of a record: itself if it is a string, its field, or its messages as lines of `role: content`."""
    if isinstance(record, str):
        return check_text(record, where)
    if isinstance(record, dict) and field == "text" and "text" not in record and "messages" in record:
        return check_text(_conversation(record["messages"], where), where)
    found = record
    for key in field.split("."):
        if not isinstance(found, dict) or key not in found:
            is_object = isinstance(record, dict) and record
            has = f"has the fields {and_more(list(record), _NAMED)}" if is_object else f"is {_shown(record)}"
            raise DataError(
                f"the record has no field {field}: it {has}. Set data.field to the one with the text.", where
            )
        found = found[key]
    if found is None:
        return ""
    if not isinstance(found, str):
        raise DataError(f"the field {field} is {_shown(found)}, not a text. Set data.field to another.", where)
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


def _shown(value: Any) -> str:
    return json.dumps(value)[:_LONG]

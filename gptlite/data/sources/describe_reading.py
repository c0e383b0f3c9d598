"""Lines for the user about how prepare read the text, where that is not obvious."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from gptlite.data.sources.charset import HEAD_BYTES
from gptlite.data.sources.compression import open_plain
from gptlite.data.sources.documents import Reading, holds_records
from gptlite.formatting import and_more

_SEVERAL, _SHORT = 100, 40  # lines, and characters of each: a list, such as one of names


def describe_reading(files: Sequence[Path], reading: Reading, *, asked: str | None) -> Iterator[str]:
    """Say what is not obvious of how a text was understood, and which key changes it. asked: data.documents as set."""
    if reading.documents == "records":
        kinds = sorted({reading.kind(path) for path in files})
        tables = {"CSV", "TSV"}
        places = [f"the field {reading.field} (data.field)"] * (not tables.issuperset(kinds))
        places += [f"the column {reading.column} (data.column)"] * (not tables.isdisjoint(kinds))
        yield (
            f"each record of {' and '.join(kinds)} is a document, with its text in {' or '.join(places)}; "
            "use data.documents=files to train on the file as it is"
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


def _doubts(files: Sequence[Path], reading: Reading) -> Iterator[str]:
    """Name what was taken as text and may be something else."""
    records = [path.name for path in files if holds_records(path)]
    if records:
        yield (
            f"warning: {and_more(records, 2)} may hold records, but beside other files each is text. To train on the "
            "texts in records, choose only files that hold some."
        )
    if len(files) != 1:
        return
    with open_plain(files[0]) as file:
        head = file.read(HEAD_BYTES).decode(reading.encoding, "replace")
    lines = [line.strip() for line in head.split("\n")[:-1]]
    if looks_like_json_lines(lines):
        yield (
            f"warning: {files[0].name} looks like JSON Lines, but is read as text. To train on the texts in its "
            "records, rename it to end in .jsonl."
        )
    elif len(lines) >= _SEVERAL and all(0 < len(line) <= _SHORT for line in lines):
        yield (
            f"{files[0].name} is one document of many short lines. If each line is a text of its own, such as a name, "
            "use data.documents=lines"
        )


def looks_like_json_lines(lines: Sequence[str]) -> bool:
    """Whether the first two lines are each a JSON object."""
    try:
        first = [json.loads(line) for line in lines[:2]]
    except (ValueError, RecursionError):
        return False
    return len(first) == 2 and all(isinstance(each, dict) for each in first)

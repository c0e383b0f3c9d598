"""Named data sets: cards with the URLs and the sha256 of a text, which is downloaded when it is first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from gptlite.config.loading import builtin_folder
from gptlite.errors import DataError


@dataclass(frozen=True)
class Card:
    """The content of one file `data/<name>.yaml`.

    reading: values of the keys `documents` and `separator` of `data:`, used where neither is given.
    """

    name: str
    about: str
    urls: tuple[str, ...]
    sha256: str
    n_bytes: int
    licence: str
    reading: Mapping[str, str] = field(default_factory=dict)

    def file_in(self, folder: Path) -> Path:
        """Return where the text is, or would be."""
        return folder / f"{self.name}.txt"

    def check_sha256(self, path: Path, sha256: str) -> None:
        """DataError unless `sha256`, that of the file at `path`, is the text's."""
        if sha256 != self.sha256:
            raise DataError(
                f"this is not the text of {self.name}: its sha256 begins with {sha256[:12]}, not with "
                f"{self.sha256[:12]}. Delete it, and it is downloaded again.",
                str(path),
            )


def cards() -> list[Card]:
    """Return all data sets, sorted by name."""
    return [_read(path) for path in sorted(builtin_folder("data").glob("*.yaml"))]


def find_card(name: str) -> Card | None:
    """Return the card of that name, if there is one."""
    return next((card for card in cards() if card.name == name), None)


def _read(path: Path) -> Card:
    fields = yaml.load(path.read_text("utf-8"), yaml.BaseLoader)  # all values as text: a sha256 is never a number
    reading = {key: fields.pop(key) for key in ("documents", "separator") if key in fields}
    return Card(n_bytes=int(fields.pop("bytes")), urls=tuple(fields.pop("urls")), reading=reading, **fields)

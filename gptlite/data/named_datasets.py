"""Data sets by name: a card says where a text lies and how to know that it is the right one."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import yaml

from gptlite import files
from gptlite.config.loading import builtin_folder
from gptlite.errors import DataError, StorageError

TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Card:
    """One file `data/<name>.yaml`."""

    name: str
    about: str
    url: str
    sha256: str
    n_bytes: int
    licence: str

    def saved(self, downloads: Path) -> Path:
        """The text on this machine, downloaded into `downloads` where it is missing.

        A StorageError when it cannot be had. Its sha256 is checked on arrival; later, whoever hashes it can compare.
        """
        path = downloads / f"{self.name}.txt"
        if not path.exists():
            data = self._download(path)
            files.make_dirs(downloads)
            files.replace(path, data)
        if path.stat().st_size != self.n_bytes:
            raise self._not_this_text(path, f"{path.stat().st_size} bytes", f"{self.n_bytes} bytes")
        return path

    def check(self, path: Path, sha256: str) -> None:
        """DataError unless `sha256`, taken from the file at `path`, is the text's."""
        if sha256 != self.sha256:
            raise self._not_this_text(path, f"sha256 {sha256[:12]}", self.sha256[:12])

    def _not_this_text(self, path: Path, found: str, needed: str) -> DataError:
        return DataError(f"{path}: text = {found}: {self.name} has {needed}; delete it and it is downloaded again")

    def _download(self, path: Path) -> bytes:
        try:
            with urllib.request.urlopen(self.url, timeout=TIMEOUT) as answer:
                data: bytes = answer.read(self.n_bytes + 1)  # an endless answer ends here
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
            raise StorageError(
                f"data.source = {self.name}: downloading {self.url} failed ({reason}); "
                f"go online, or put the file at {path}"
            ) from error
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise StorageError(
                f"data.source = {self.name}: {self.url} sent another text (sha256 {self.sha256[:12]}... is needed); "
                f"try again, or put the file at {path}"
            )
        return data


def card_names() -> list[str]:
    """Names of all data sets, sorted."""
    return sorted(path.stem for path in _card_files())


def find_card(name: str) -> Card | None:
    """The card of that name, if there is one."""
    for path in _card_files():
        if path.stem == name:
            return _read(path)
    return None


def _card_files() -> Iterator[Path]:
    yield from builtin_folder("data").glob("*.yaml")


def _read(path: Path) -> Card:
    fields = yaml.load(path.read_text("utf-8"), yaml.BaseLoader)  # all values as text: a sha256 is never a number
    return Card(n_bytes=int(fields.pop("bytes")), **fields)

"""The sources of text: a file, a folder, a glob, a named data set, standard input, Python's standard library."""

from __future__ import annotations

import difflib
import glob
import os
import platform
import re
import sysconfig
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gptlite.config.schema import DataSection
from gptlite.data.sources import named_datasets
from gptlite.data.sources.charset import HEAD_BYTES
from gptlite.data.sources.documents import (
    Document,
    Skipped,
    describe_skipped,
    is_text_file,
    read_documents,
    with_card,
    with_documents,
)
from gptlite.data.sources.file_formats import ADVICE, format_of, is_compressed, open_plain
from gptlite.download import download
from gptlite.errors import DataError
from gptlite.formatting import Say, say_nothing
from gptlite.storage import files as disk

PYTHON_STDLIB = "python-stdlib"
PLAIN = DataSection()
DOWNLOADS = Path("data/downloads")
STANDARD_INPUT = Path("data/stdin")
_PIECE = 1 << 20  # bytes of standard input that are read at a time
_SHORT = 12  # hex digits of the sha256 in its file's name

# Not the library itself: its tests (other encodings, errors on purpose), installed packages, one huge table of help.
_NOT_LIBRARY = frozenset(
    {"test", "tests", "idle_test", "pydoc_data", "site-packages", "dist-packages", "__pycache__", "lib-dynload"}
)

# Files that mark a run and a prepared data set.
_OUTPUT_MARKS = (("config.yaml", "run.json"), ("MANIFEST.json", "train-00000.bin"))
_ESCAPED = re.compile(r"\[([*?[])\]")  # a special character, as glob.escape writes it


@dataclass(frozen=True)
class Source:
    """An opened `data.source`: its files in order, not yet read.

    spec: as it can be written into a config used from another folder: an absolute path, or a data set's name.
    name: without the location, so that it is the same wherever the text is.
    reading: how files become documents, `documents` decided.
    is_one_file: the user named this very file, so it is never skipped.
    is_for_validation: all of it, as data.val_source asks.
    sha256: of the files that are read; empty until `fingerprint_sources` knows it.
    """

    spec: str
    name: str
    root: Path
    files: tuple[Path, ...]
    reading: DataSection
    is_one_file: bool = False
    is_for_validation: bool = False
    card: named_datasets.Card | None = None
    python: str | None = None
    sha256: str = ""

    def fetch(self, say: Say = say_nothing) -> None:
        """Download the text of a data set if it is missing; `say` gets the progress. StorageError if that fails."""
        if self.card is not None and not self.files[0].exists():
            where = "data.val_source" if self.is_for_validation else "data.source"
            card, path = self.card, self.files[0]
            download(card.urls, path, card.sha256, max_bytes=card.n_bytes, where=where, say=say)

    def documents(self, skipped: Skipped | None = None) -> Iterator[Document]:
        """Yield the documents of each file, in order. What has no text is skipped and counted.

        DataError for a file that cannot be read or decoded, and at the end if there was no text at all.
        """
        counts = Skipped() if skipped is None else skipped
        has_text = False
        for path in self.files:
            name = path.relative_to(self.root).as_posix()
            for document in read_documents(path, name, self.reading, counts, skip_binary=not self.is_one_file):
                has_text = True
                yield document
        if not has_text:
            raise self.no_text(counts)

    def count_bytes(self) -> int:
        """Return the size of the text, as it is on the disk unless it has to be read: bytes."""
        if self.card is not None:
            return self.card.n_bytes  # it may not be on the disk yet
        if self.reading.documents == "records" or any(map(is_compressed, self.files)):
            return sum(len(piece) for document in self.documents() for piece in document.pieces)
        read = (path for path in self.files if is_text_file(path, self.reading) or self.is_one_file)
        sizes = sum(path.stat().st_size for path in read)
        if sizes == 0:
            next(self.documents())  # raises: it knows what there is instead of text
        return sizes

    def no_text(self, skipped: Skipped) -> DataError:
        """Return the error for a source without any text."""
        return DataError(f"there is no text here{describe_skipped(skipped)}. {ADVICE}", self.spec)


def open_source(spec: str, reading: DataSection = PLAIN) -> Source:
    """Find the files of `spec`.

    Files are sorted by their path within the source. A folder and a `**` glob leave out hidden files, runs and prepared
    data sets. A path that exists has priority over the name of a data set. DataError when there is nothing of that
    name or no file in it. The file of a data set may be missing until it is fetched (`Source.fetch`).
    """
    try:
        if spec == PYTHON_STDLIB:
            return _standard_library(reading)
        path = Path(_absolute_path(spec))
        if path.is_dir():
            found = _find_files(path, lambda name: name.startswith("."))
            return _several(str(path), path.name or "root", path, found, reading)
        if path.exists():
            return _one_file(path, reading)
        if glob.has_magic(spec):
            return _glob(path, reading)
        card = named_datasets.find_card(spec)
        if card is not None:
            file = card.file_in(DOWNLOADS)
            reading = with_documents(with_card(reading, card), [file])
            return Source(spec, spec, file.parent, (file,), reading, is_one_file=True, card=card)
        raise _missing(spec, path)
    except OSError as error:
        raise DataError(f"{spec[:80]} cannot be read ({error.strerror}). Check the path.", "data.source") from error


def absolute_spec(spec: str) -> str:
    """Return `spec` as it can be written into a config used from another folder, whether it exists or not."""
    path = _absolute_path(spec)
    is_name = spec == PYTHON_STDLIB or (not os.path.exists(path) and named_datasets.find_card(spec) is not None)
    return spec if is_name else path


def _absolute_path(spec: str) -> str:
    """Return the absolute path or glob. The part added to a relative glob is escaped."""
    spec = os.path.expanduser(spec)
    path = os.path.abspath(spec)
    is_glob = glob.has_magic(spec) and not os.path.exists(path)
    return os.path.abspath(os.path.join(glob.escape(os.getcwd()), spec)) if is_glob else path


def _one_file(path: Path, reading: DataSection) -> Source:
    if not path.is_file():
        raise DataError("this is a pipe or device, and text is read more than once. Save it to a file.", str(path))
    with open_plain(path) as file:
        if known := format_of(file.read(HEAD_BYTES)):
            raise DataError(f"this is {known}. {ADVICE}", str(path))
    return Source(str(path), path.name, path.parent, (path,), with_documents(reading, [path]), is_one_file=True)


def _glob(pattern: Path, reading: DataSection) -> Source:
    is_fixed = [not glob.has_magic(_ESCAPED.sub("", part)) for part in pattern.parts[:-1]]
    fixed = [*is_fixed, False].index(False)
    root = Path(*(_ESCAPED.sub(r"\1", part) for part in pattern.parts[:fixed]))
    found = {path for name in glob.glob(str(pattern), recursive=True) if (path := Path(name)).is_file()}
    if "**" in pattern.parts:  # a search; other globs may name a run's files on purpose
        folders = {folder for path in found for folder in path.parents if root in folder.parents}
        outputs = {folder for folder in folders if _is_output(folder)}
        found = {path for path in found if outputs.isdisjoint(path.parents)}
    if not found:
        raise _missing(str(pattern), pattern)
    name = Path(root.name, *pattern.parts[fixed:]).as_posix()
    return _several(str(pattern), name, root, found, reading)


def _standard_library(reading: DataSection) -> Source:
    root = Path(sysconfig.get_path("stdlib"))
    python = [path for path in _find_files(root, _NOT_LIBRARY.__contains__) if path.suffix == ".py"]
    return _several(PYTHON_STDLIB, PYTHON_STDLIB, root, python, reading, platform.python_version())


def _several(
    spec: str,
    name: str,
    root: Path,
    found: Collection[Path],
    reading: DataSection,
    python: str | None = None,
) -> Source:
    """Return the source of these files, sorted by their path within it as text: the same on every system."""
    files = tuple(sorted(found, key=lambda path: path.relative_to(root).as_posix()))
    source = Source(spec, name, root, files, with_documents(reading, files), python=python)
    if not files:
        raise source.no_text(Skipped())
    return source


def _find_files(root: Path, skip: Callable[[str], bool]) -> list[Path]:
    """Regular files under `root`, also through links, each folder once and none that gptlite wrote.

    `skip` decides by a file's or folder's name.
    """
    found, visited = list[Path](), {os.path.realpath(root)}
    for here, folders, names in os.walk(root, onerror=_raise, followlinks=True):
        enter = []
        for name in sorted(folders):
            path = Path(here, name)
            if not skip(name) and (real := os.path.realpath(path)) not in visited and not _is_output(path):
                visited.add(real)
                enter.append(name)
        folders[:] = enter
        found += [path for name in names if not skip(name) and (path := Path(here, name)).is_file()]
    return found


def _is_output(folder: Path) -> bool:
    """Tell whether gptlite wrote the folder: a run or a prepared data set, perhaps an unfinished one."""
    is_finished = any(all((folder / name).is_file() for name in names) for names in _OUTPUT_MARKS)
    return is_finished or disk.TEMP_MARK in folder.name


def _raise(error: OSError) -> None:
    raise error


def _missing(spec: str, path: Path) -> DataError:
    known = [PYTHON_STDLIB, *(card.name for card in named_datasets.cards())]
    problem = "no file matches" if glob.has_magic(spec) else "there is no file, folder or data set named"
    beside = os.listdir(path.parent) if path.parent.is_dir() else []
    near = difflib.get_close_matches(Path(spec).name, [*known, *beside], n=1)
    advice = f"Did you mean {near[0]}?" if near else f"Check the path; the data sets are {', '.join(known)}."
    return DataError(f"{problem} {spec[:80]}. {advice}", "data.source")


def keep_standard_input(stream: BinaryIO, folder: Path = STANDARD_INPUT) -> Path:
    """Write all that the stream has to a file named by its content, and return it. Equal text is kept once.

    The folder is ignored by git: what was piped into a program is seldom meant to be published.

    DataError where there is nothing, StorageError where it cannot be written.
    """
    disk.make_dirs(folder)
    with disk.removed_on_error(disk.temp_name(folder / "stdin.txt")) as temp:
        size, sha256 = disk.write_new(temp, iter(lambda: stream.read(_PIECE), b""))
        if size == 0:
            raise DataError("standard input has no text. Send some, as in `cat *.txt | gptlite prepare --data -`.")
        path = folder / f"stdin-{sha256[:_SHORT]}.txt"
        disk.replace(folder / ".gitignore", b"*\n")
        disk.move(temp, path)
    return path

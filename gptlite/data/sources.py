"""Where text comes from: a file, a folder, a glob, a named data set, Python's own library."""

from __future__ import annotations

import difflib
import glob
import os
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from gptlite.data import named_datasets
from gptlite.data.charset import HEAD_BYTES, BinaryFile, decode, is_binary
from gptlite.errors import DataError
from gptlite.formatting import counted

PYTHON_STDLIB = "python-stdlib"
DOWNLOADS = Path("data/downloads")

# Not the library proper: its tests (other encodings, broken on purpose), what pip installed, one huge table of help.
_NOT_LIBRARY = frozenset(
    {"test", "tests", "idle_test", "pydoc_data", "site-packages", "dist-packages", "__pycache__", "lib-dynload"}
)

# Files by which a run and a prepared data set are known.
_OWN = (("config.yaml", "run.json"), ("manifest.json", "train-00000.bin", "train-00000.idx"))
_ESCAPED = re.compile(r"\[([*?[])\]")  # as glob.escape writes a character that stands for itself


@dataclass(frozen=True)
class Document:
    """The text of one file; `name` is its path inside the source."""

    name: str
    text: str


@dataclass(frozen=True)
class Source:
    """An opened `data.source`: which files, in which order; nothing of them is read yet.

    spec: what to write into a config that is used elsewhere: an absolute path, or the name as it was given.
    name: what to call it where paths must not matter.
    one_file: the user named this very file, so it is never skipped.
    left_out: folders that gptlite itself wrote, which are no text.
    """

    spec: str
    name: str
    root: Path
    files: tuple[Path, ...]
    encoding: str
    normalize: str
    one_file: bool = False
    card: named_datasets.Card | None = None
    python: str | None = None
    left_out: tuple[str, ...] = ()

    def documents(self, skipped: Counter[str] | None = None) -> Iterator[Document]:
        """Each file's text, in order, one at a time; of a folder or glob, binary and empty files are left out.

        `skipped` counts those by kind. DataError for a file that cannot be read or decoded, for a named file without
        text, and at the end when there was none at all.
        """
        counts = Counter[str]() if skipped is None else skipped
        found = False
        for path in self.files:
            try:
                text = self._text(path)
            except BinaryFile:
                if self.one_file:
                    raise
                counts["binary"] += 1
                continue
            if not text and not self.one_file:
                counts["empty"] += 1
                continue
            if not text:
                raise DataError(f"{path}: text = 0 bytes: a file with text is needed; choose another file")
            found = True
            yield Document(path.relative_to(self.root).as_posix(), text)
        if not found:
            raise self.without_text(counts)

    def without_text(self, skipped: Counter[str]) -> DataError:
        """The error for a source in which no text was found."""
        left_out = [f"{count} {kind}" for kind, count in sorted(skipped.items())]
        left_out += [counted(len(self.left_out), "folder") + " that gptlite wrote"] if self.left_out else []
        detail = f" ({', '.join(left_out)} skipped)" if left_out else ""
        return DataError(f"{self.spec}: text files = 0{detail}: at least one is needed; check the path")

    def _text(self, path: Path) -> str:
        try:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
                if not self.one_file and is_binary(head, self.encoding):
                    raise BinaryFile(f"{path}: binary")  # without reading the rest, which may be large
                raw = head + file.read()
        except OSError as error:
            raise DataError(
                f"{path}: reading = {error.strerror}: a readable file is needed; check the file and its permissions"
            ) from error
        return decode(raw, self.encoding, self.normalize, str(path))


def open_source(
    spec: str,
    encoding: str = "utf-8",
    normalize: str = "none",
    *,
    downloads: Path = DOWNLOADS,
    leave_out: Collection[Path] = (),
) -> Source:
    """Find the files of `spec`; what lies in `leave_out` is no part of it.

    Files come sorted by their path inside the source. Of a folder and a `**` glob, hidden files are left out, and runs
    and prepared data sets. A path that exists wins over the name of a data set. DataError when there is nothing of
    that name or no file in it, StorageError for a failed download.
    """
    try:
        if spec == PYTHON_STDLIB:
            return _library(encoding, normalize)
        path = Path(_absolute(spec))
        if path.is_dir():
            files, own = _files_below(path, lambda name: name.startswith("."), leave_out)
            return _several(Source(str(path), path.name or "root", path, files, encoding, normalize, left_out=own))
        if path.exists():
            return _file(path, encoding, normalize)
        if glob.has_magic(spec):
            return _several(_glob(path, leave_out, encoding, normalize))
        card = named_datasets.find_card(spec)
        if card is not None:
            saved = card.saved(downloads)
            return Source(spec, spec, saved.parent, (saved,), encoding, normalize, one_file=True, card=card)
        raise _missing(spec, path)
    except OSError as error:
        raise DataError(
            f"data.source = {spec[:80]}: {error.strerror}: a file, folder or glob is needed; check the path"
        ) from error


def absolute(spec: str) -> str:
    """`spec` as it can be written into a config that is used from another folder; whether it is there or not."""
    path = _absolute(spec)
    is_name = spec == PYTHON_STDLIB or (not os.path.exists(path) and named_datasets.find_card(spec) is not None)
    return spec if is_name else path


def _absolute(spec: str) -> str:
    """The path or glob from the root on; of a relative glob, the part in front of it stands for itself."""
    spec = os.path.expanduser(spec)
    path = os.path.abspath(spec)
    is_glob = glob.has_magic(spec) and not os.path.exists(path)
    return os.path.abspath(os.path.join(glob.escape(os.getcwd()), spec)) if is_glob else path


def _file(path: Path, encoding: str, normalize: str) -> Source:
    if not path.is_file():
        raise DataError(f"{path}: kind = pipe or device: text is read more than once; save it to a file first")
    return Source(str(path), path.name, path.parent, (path,), encoding, normalize, one_file=True)


def _glob(pattern: Path, leave_out: Collection[Path], encoding: str, normalize: str) -> Source:
    is_fixed = [not glob.has_magic(_ESCAPED.sub("", part)) for part in pattern.parts[:-1]]
    fixed = [*is_fixed, False].index(False)
    root = Path(*(_ESCAPED.sub(r"\1", part) for part in pattern.parts[:fixed]))
    found = {Path(name) for name in glob.glob(str(pattern), recursive=True)}
    folders = {folder for path in found for folder in path.parents}
    own = folders & {Path(os.path.abspath(folder)) for folder in leave_out}
    if "**" in pattern.parts:  # it searches; without, it may well name a run's files
        own |= {folder for folder in folders if root in folder.parents and is_own(folder)}
    files = _sorted(root, [path for path in found if path.is_file() and own.isdisjoint(path.parents)])
    name = Path(root.name, *pattern.parts[fixed:]).as_posix()
    return Source(str(pattern), name, root, files, encoding, normalize, left_out=_names(root, own))


def _library(encoding: str, normalize: str) -> Source:
    root = Path(sysconfig.get_path("stdlib"))
    files, _ = _files_below(root, _NOT_LIBRARY.__contains__)
    python = tuple(path for path in files if path.suffix == ".py")
    version = platform.python_version()
    return _several(Source(PYTHON_STDLIB, PYTHON_STDLIB, root, python, encoding, normalize, python=version))


def _files_below(
    root: Path, skip: Callable[[str], bool], leave_out: Collection[Path] = ()
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Regular files under `root`, through links too, each folder once; `skip` prunes files and folders by name.

    And the folders that were left out: gptlite's own, among them `leave_out`.
    """
    found: list[Path] = []
    own: list[Path] = []
    visited, ours = {os.path.realpath(root)}, {os.path.realpath(folder) for folder in leave_out}
    for here, folders, names in os.walk(root, onerror=_raise, followlinks=True):
        found += [path for name in names if not skip(name) and (path := Path(here, name)).is_file()]
        enter = []
        for name in sorted(folders):
            folder = Path(here, name)
            real = os.path.realpath(folder)
            if skip(name) or real in visited:
                continue
            visited.add(real)
            if real in ours or is_own(folder):
                own.append(folder)
            else:
                enter.append(name)
        folders[:] = enter
    return _sorted(root, found), _names(root, own)


def is_own(folder: Path) -> bool:
    """Whether gptlite wrote the folder: a run or a prepared data set."""
    return any(all((folder / name).is_file() for name in names) for names in _OWN)


def _names(root: Path, folders: Collection[Path]) -> tuple[str, ...]:
    """The folders by their path in `root`, those that lie in another of them left out."""
    return tuple(sorted(f.relative_to(root).as_posix() for f in folders if not any(p in folders for p in f.parents)))


def _raise(error: OSError) -> None:
    raise error


def _sorted(root: Path, files: Collection[Path]) -> tuple[Path, ...]:
    # By the path as text, the same on every system and wherever the source lies.
    return tuple(sorted(files, key=lambda path: path.relative_to(root).as_posix()))


def _several(source: Source) -> Source:
    if not source.files:
        raise source.without_text(Counter())
    return source


def _missing(spec: str, path: Path) -> DataError:
    kind = "match" if glob.has_magic(spec) else "file, folder or data set of that name"
    names = [PYTHON_STDLIB, *named_datasets.card_names()]
    beside = os.listdir(path.parent) if path.parent.is_dir() else []
    near = difflib.get_close_matches(Path(spec).name, [*names, *beside], n=1)
    hint = f"did you mean {near[0]}?" if near else f"check the path; data sets: {', '.join(names)}"
    return DataError(f"data.source = {spec[:80]}: no such {kind}; {hint}")

"""Text from standard input: written to a file first, because text is read more than once."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import BinaryIO

from gptlite.errors import DataError, StorageError
from gptlite.storage import files

FOLDER = Path("data/stdin")
_PIECE = 1 << 20
_SHORT = 12  # hex digits of the text's sha256 in the file's name


def keep_standard_input(stream: BinaryIO, folder: Path = FOLDER) -> Path:
    """Write all that the stream has to a file named by its content, and return it. Equal text is kept once.

    The folder is ignored by git: what was piped into a program is seldom meant to be published.

    DataError where there is nothing, StorageError where it cannot be written.
    """
    files.make_dirs(folder)
    temp = files.temp_name(folder / "stdin.txt")
    try:
        size, sha256 = files.write_new(temp, iter(lambda: stream.read(_PIECE), b""))
        if size == 0:
            raise DataError("standard input has no text. Send some, as in `cat *.txt | gptlite prepare --data -`.")
        path = folder / f"stdin-{sha256[:_SHORT]}.txt"
        if not path.is_file() or files.file_sha256(path) != sha256:
            files.remove_tree(path)
            files.replace(folder / ".gitignore", b"*\n")
            files.publish(temp, path)
        return path
    finally:
        with contextlib.suppress(StorageError):  # the first error is the one to report
            files.remove_tree(temp)

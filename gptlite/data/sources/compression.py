"""Reading files that may be compressed: .gz and .xz by the standard library, .zst by the package zstandard."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from gptlite.errors import DataError

_ENDINGS = (".gz", ".xz", ".zst")


def compression_of(path: Path) -> str | None:
    """Return the ending that says how a file is compressed; None where it is not."""
    ending = path.suffix.lower()
    return ending if ending in _ENDINGS else None


def plain_suffix(path: Path) -> str:
    """Return the ending of a name in lower case, without that of its compression: ".jsonl" for a.jsonl.gz."""
    return Path(path.stem if compression_of(path) else path.name).suffix.lower()


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open a file for its decompressed bytes.

    DataError where it cannot be read, is not what its ending says, or ends too early.
    """
    ending = compression_of(path)
    try:
        with _open(path, ending) as file:
            yield cast(BinaryIO, file)
    except EOFError:
        raise DataError("the compressed file ends too early. Download or copy it again.", str(path)) from None
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise _invalid(path, error) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:
        if type(error).__name__ != "ZstdError":  # its module may not be installed
            raise
        raise _invalid(path, error) from None


def _open(path: Path, ending: str | None) -> IO[bytes]:
    if ending == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if ending == ".xz":
        return lzma.open(path, "rb")
    if ending is None:
        return path.open("rb")
    try:
        import zstandard
    except ImportError:
        raise DataError(
            "reading .zst needs the package zstandard. Install gptlite[zst], or decompress the file.", str(path)
        ) from None
    return io.BufferedReader(zstandard.open(path, "rb"))  # which has lines, too


def _invalid(path: Path, error: Exception) -> DataError:
    return DataError(f"this is not a valid {path.suffix} file ({error}). Check it, or rename it.", str(path))


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a source file that cannot be read."""
    return DataError(f"the file cannot be read ({error.strerror}). Check the path and its permissions.", str(path))

"""The formats of files, by ending and first bytes: what is decompressed, and what is no text and refused."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from gptlite.errors import DataError

ADVICE = "Choose plain text, or save yours as .txt, .csv or .jsonl first."  # for what is no text
# By name, a regular expression for the first bytes of a file. The first match counts.
# A zip file begins with a header of 30 bytes and the name of its first member. EPUB and OpenDocument store `mimetype`
# there, uncompressed; Office writes the names of its folders nearly as early.
FORMATS = {
    "a PDF file": rb"%PDF-",
    "an RTF file": rb"\{\\rtf",
    "an old Word or other Office file": rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
    "an EPUB file": rb"PK\x03\x04.{26}mimetypeapplication/epub",
    "an OpenDocument file": rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis",
    "a Word file": rb"PK\x03\x04.*word/",
    "a PowerPoint file": rb"PK\x03\x04.*ppt/",
    "an Excel file": rb"PK\x03\x04.*xl/",
    "a Parquet file": rb"PAR1",
    "a zip archive": rb"PK(\x03\x04|\x05\x06)",
    "a 7z archive": rb"7z\xbc\xaf\x27\x1c",
    "a RAR archive": rb"Rar!\x1a\x07",
    "a tar archive": rb".{257}ustar",
    "a bzip2 file": rb"BZh[1-9]1AY&SY",
    "a gzip file": rb"\x1f\x8b\x08",
    "an xz file": rb"\xfd7zXZ\x00",
    "a Zstandard file": rb"\x28\xb5\x2f\xfd",
    "an image": rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\x00|MM\x00\*|RIFF.{4}WEBP|\x00\x00\x00.ftyp(heic|mif1|avif)",
    "an audio or video file": rb"ID3[\2-\4]|\xff\xfb|OggS\0|fLaC\0|RIFF.{4}(WAVE|AVI )|\0\0\0.ftyp|\x1aE\xdf\xa3",
}


def format_of(head: bytes) -> str | None:
    """Return the name of a file's format by its first bytes; None for text and for what is unknown.

    >>> format_of(b"%PDF-1.7"), format_of(b"Portable documents")
    ('a PDF file', None)
    """
    return next((name for name, start in FORMATS.items() if re.match(start, head, re.DOTALL)), None)


def _open_zst(path: Path, mode: str) -> IO[bytes]:
    try:
        import zstandard
    except ImportError:
        raise DataError(
            "reading .zst needs the package zstandard. Install gptlite[zst], or decompress the file.", str(path)
        ) from None
    return io.BufferedReader(zstandard.open(path, mode))


_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": _open_zst}


def is_compressed(path: Path) -> bool:
    """Tell from its ending whether a file is compressed."""
    return path.suffix.lower() in _OPENERS


def plain_suffix(path: Path) -> str:
    """Return the ending of a name in lower case, without that of its compression: ".jsonl" for a.jsonl.gz."""
    return Path(path.stem if is_compressed(path) else path.name).suffix.lower()


@contextmanager
def open_plain(path: Path) -> Iterator[BinaryIO]:
    """Open a file for its decompressed bytes.

    DataError where it cannot be read, is not what its ending says, or ends too early.
    """
    zstd_error = getattr(sys.modules.get("zstandard"), "ZstdError", EOFError)  # its package may not be installed
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError, zstd_error) as error:
        message = f"this is not a valid {path.suffix} file ({error}). Copy or download it again, or rename it."
        raise DataError(message, str(path)) from None
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a source file that cannot be read."""
    return DataError(f"the file cannot be read ({error.strerror}). Check the path and its permissions.", str(path))

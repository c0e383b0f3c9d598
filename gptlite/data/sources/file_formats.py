"""The formats of files, by ending and first bytes: what is decompressed, and what is no text and refused."""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from gptlite.errors import DataError

_SAVE = "Save the text as a .txt file first."
_UNPACK = "Unpack the archive first."
_CHOOSE = "Choose a text file."
# By a regular expression for the first bytes: article and name of the format, and the advice. The first match counts.
FORMATS = {
    rb"%PDF-": ("a", "PDF file", _SAVE),
    rb"\{\\rtf": ("an", "RTF file", _SAVE),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an", "old Word or other Office file", _SAVE),
    # A zip file begins with a header of 30 bytes and the name of its first member. EPUB and OpenDocument store
    # `mimetype` there, uncompressed; Office writes the names of its folders nearly as early.
    rb"PK\x03\x04.{26}mimetypeapplication/epub": ("an", "EPUB file", _SAVE),
    rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis": ("an", "OpenDocument file", _SAVE),
    rb"PK\x03\x04.*word/": ("a", "Word file", _SAVE),
    rb"PK\x03\x04.*ppt/": ("a", "PowerPoint file", _SAVE),
    rb"PK\x03\x04.*xl/": ("an", "Excel file", "Save the table as .csv first."),
    rb"PK(\x03\x04|\x05\x06)": ("a", "zip archive", _UNPACK),
    rb"7z\xbc\xaf\x27\x1c": ("a", "7z archive", _UNPACK),
    rb"Rar!\x1a\x07": ("a", "RAR archive", _UNPACK),
    rb".{257}ustar": ("a", "tar archive", _UNPACK),
    rb"BZh[1-9]1AY&SY": ("a", "bzip2 file", _UNPACK),
    rb"\x1f\x8b\x08": ("a", "gzip file", "Let the name end in .gz."),
    rb"\xfd7zXZ\x00": ("an", "xz file", "Let the name end in .xz."),
    rb"\x28\xb5\x2f\xfd": ("a", "Zstandard file", "Let the name end in .zst."),
    rb"PAR1": ("a", "Parquet file", "Save the texts as JSON Lines (.jsonl) first."),
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\x00|MM\x00\*|RIFF.{4}WEBP|\x00\x00\x00.ftyp(heic|mif1|avif)": (
        "an",
        "image",
        _CHOOSE,
    ),
    rb"ID3[\x02-\x04]|\xff\xfb|OggS\x00|fLaC\x00|RIFF.{4}(WAVE|AVI )|\x00\x00\x00.ftyp|\x1aE\xdf\xa3": (
        "an",
        "audio or video file",
        _CHOOSE,
    ),
}


def format_of(head: bytes) -> tuple[str, str, str] | None:
    """Return article, name and advice for a file with these first bytes; None for text and for what is unknown.

    >>> format_of(b"%PDF-1.7")[:2], format_of(b"Portable documents")
    (('a', 'PDF file'), None)
    """
    return next((found for start, found in FORMATS.items() if re.match(start, head, re.DOTALL)), None)


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
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except EOFError:
        raise DataError("the compressed file ends too early. Download or copy it again.", str(path)) from None
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise unreadable(path, error) from error
        # ZstdError by its name: its package may not be installed.
        if isinstance(error, OSError | lzma.LZMAError | zlib.error) or type(error).__name__ == "ZstdError":
            message = f"this is not a valid {path.suffix} file ({error}). Check it, or rename it."
            raise DataError(message, str(path)) from None
        raise


def unreadable(path: Path, error: OSError) -> DataError:
    """Return the error for a source file that cannot be read."""
    return DataError(f"the file cannot be read ({error.strerror}). Check the path and its permissions.", str(path))

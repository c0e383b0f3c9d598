"""Files that are no plain text, recognised by their first bytes, and what to do with each."""

from __future__ import annotations

import re
from collections.abc import Collection

from gptlite.errors import DataError

_SAVE = "Save the text as a .txt file first."
_UNPACK = "Unpack the archive first."
_CHOOSE = "Choose a text file."
# By a regular expression for the first bytes: the format, and the advice. The first one that matches is it.
_FORMATS = {
    rb"%PDF-": ("a PDF file", _SAVE),
    rb"\{\\rtf": ("an RTF file", _SAVE),
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": ("an old Word or other Office file", _SAVE),
    # A zip file begins with a header of 30 bytes and the name of its first member. EPUB and OpenDocument store
    # `mimetype` there, uncompressed; Office writes the names of its folders nearly as early.
    rb"PK\x03\x04.{26}mimetypeapplication/epub": ("an EPUB file", _SAVE),
    rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis": ("an OpenDocument file", _SAVE),
    rb"PK\x03\x04.*word/": ("a Word file", _SAVE),
    rb"PK\x03\x04.*ppt/": ("a PowerPoint file", _SAVE),
    rb"PK\x03\x04.*xl/": ("an Excel file", "Save the table as .csv first."),
    rb"PK(\x03\x04|\x05\x06)": ("a zip archive", _UNPACK),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    rb"Rar!\x1a\x07": ("a RAR archive", _UNPACK),
    rb".{257}ustar": ("a tar archive", _UNPACK),
    rb"BZh[1-9]1AY&SY": ("a bzip2 file", _UNPACK),
    rb"\x1f\x8b\x08": ("a gzip file", "Let the name end in .gz."),
    rb"\xfd7zXZ\x00": ("an xz file", "Let the name end in .xz."),
    rb"\x28\xb5\x2f\xfd": ("a Zstandard file", "Let the name end in .zst."),
    rb"PAR1": ("a Parquet file", "Save the texts as JSON Lines (.jsonl) first."),
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\x00|MM\x00\*|RIFF.{4}WEBP|\x00\x00\x00.ftyp(heic|mif1|avif)": (
        "an image",
        _CHOOSE,
    ),
    rb"ID3[\x02-\x04]|\xff\xfb|OggS\x00|fLaC\x00|RIFF.{4}(WAVE|AVI )|\x00\x00\x00.ftyp|\x1aE\xdf\xa3": (
        "an audio or video file",
        _CHOOSE,
    ),
}


def refuse_format(head: bytes, where: str) -> None:
    """DataError for the first bytes of a file whose format is known to be no plain text."""
    if (found := _find(head)) is not None:
        raise DataError(f"this is {found[0]}. {found[1]}", where)


def kind_of(head: bytes) -> str | None:
    """What a file with these first bytes is called; None for text and for what is unknown.

    >>> kind_of(b"%PDF-1.7"), kind_of(b"Portable documents")
    ('PDF file', None)
    """
    found = _find(head)
    return None if found is None else _without_article(found[0])


def advice_for(kinds: Collection[str]) -> str | None:
    """What to do with files of these kinds; None where none of them is known."""
    return next((advice for what, advice in _FORMATS.values() if _without_article(what) in kinds), None)


def _find(head: bytes) -> tuple[str, str] | None:
    return next((found for start, found in _FORMATS.items() if re.match(start, head, re.DOTALL)), None)


def _without_article(what: str) -> str:
    return what.partition(" ")[2]

"""Bytes of a file to text: what is text at all, and which encoding it is likely to be in."""

from __future__ import annotations

import codecs
import unicodedata

from gptlite.errors import DataError

HEAD_BYTES = 8192  # enough of a file to see that it is binary

# Longer marks first: the one of UTF-32 begins with the one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class BinaryFile(DataError):
    """A file that holds NUL: no text."""


def is_wide(encoding: str) -> bool:
    """Whether ordinary text in `encoding` holds NUL bytes, as UTF-16 does.

    >>> is_wide("utf-16"), is_wide("utf-8")
    (True, False)
    """
    return b"\0" in "a".encode(encoding)


def is_binary(head: bytes, encoding: str) -> bool:
    """Whether a file that begins with `head` is no text. Text in another encoding is text."""
    return b"\0" in head and not is_wide(encoding) and _wide_encoding(head) is None


def decode(raw: bytes, encoding: str, normalize: str, where: str) -> str:
    """The text of a file: a leading byte order mark dropped, newlines as they are; `where` names the file in errors.

    Raises BinaryFile for NUL, and DataError (offset, likely encoding, option) for what `encoding` cannot decode.
    """
    if b"\0" in raw and not is_wide(encoding):
        at = raw.index(b"\0")
        raise _binary(where, at) if _wide_encoding(raw) is None else _undecodable(raw, encoding, where, at)
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        raise _undecodable(raw, encoding, where, getattr(error, "start", 0)) from None
    if "\0" in text:
        raise _binary(where, text.index("\0"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # some encodings can spell it; no UTF-8 file can hold it
        code = ord(text[error.start])
        raise DataError(
            f"{where}: character {error.start} = U+{code:04X}: half of a surrogate pair is no text; mend the file"
        ) from None
    return unicodedata.normalize("NFC", text) if normalize == "nfc" else text


def likely_encoding(raw: bytes) -> str | None:
    """A guess at the encoding of text that some other encoding could not decode; None where a guess would mislead."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return name
    if b"\0" in raw:
        return _wide_encoding(raw)
    text = raw.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    if not damaged:
        return "utf-8"
    if sum(char > "\x7f" for char in text) > 2 * damaged:
        return None  # UTF-8 with damage: any 8-bit encoding would turn its good characters into bad ones
    high = len(raw.translate(None, bytes(range(128))))
    if high * 3 > len(raw):
        return None  # not a Latin script, and the bytes alone do not tell which of many encodings it is
    try:
        raw.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _wide_encoding(raw: bytes) -> str | None:
    """Which UTF-16 (or UTF-32, where a mark says so) the bytes are, or None: by a mark or by where NULs lie."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return None if name == "utf-8" else name
    head = raw[:HEAD_BYTES]
    for name, empty_half in (("utf-16-le", 1), ("utf-16-be", 0)):
        # The high byte of common characters (spaces at least) is NUL, and no low byte is.
        if b"\0" in head[empty_half::2] and b"\0" not in head[1 - empty_half :: 2] and _is_plain(head, name):
            return name
    return None


def _is_plain(head: bytes, encoding: str) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)  # it may end inside a character
    except UnicodeDecodeError:
        return False
    no_text = ("Cc", "Cn", "Co")  # control characters, and code points that are nobody's
    return text != "" and all(char in "\t\n\r\f" or unicodedata.category(char) not in no_text for char in text)


def _binary(where: str, at: int) -> BinaryFile:
    return BinaryFile(f"{where}: byte {at} = 0x00: text is needed and this is a binary file; choose another file")


def _undecodable(raw: bytes, encoding: str, where: str, at: int) -> DataError:
    guess = likely_encoding(raw)
    advice = "mend the file or set data.encoding to its encoding"
    if guess is not None and codecs.lookup(guess).name != codecs.lookup(encoding).name:
        advice = f"it looks like {guess}: set data.encoding={guess}"
    value = f"0x{raw[at]:02x}" if at < len(raw) else "the end"
    return DataError(f"{where}: byte {at} = {value}: not valid {encoding}; {advice}")

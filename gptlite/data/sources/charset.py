"""Decoding the bytes of a file; telling text from binary files, and guessing the encoding for an error's advice.

For the guess, charset-normalizer is asked only about text that is not in a Latin script: it takes much French and every
short text in cp1252 for another code page, and would advise an encoding that decodes to wrong characters.
"""

from __future__ import annotations

import codecs
import contextlib
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Literal

from gptlite.data.sources.file_formats import kind_of
from gptlite.errors import DataError

HEAD_BYTES = 8192  # of a file are enough to see whether it is binary
_SAMPLE = 1 << 16  # bytes are enough to guess the encoding
_ENOUGH = 100  # bytes that are not ASCII; from fewer, a guess is luck
_NEVER_COMPOSED = re.compile("[\0-\x7f\u4e00-\u9fff]")  # with what is before: ASCII, and ideographs

# Byte order marks. The longer ones come first: that of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class BinaryFile(DataError):
    """A file that contains NUL and so is not text."""


def is_wide(encoding: str) -> bool:
    """Whether plain text in `encoding` contains NUL bytes, as UTF-16 does.

    >>> is_wide("utf-16"), is_wide("utf-8")
    (True, False)
    """
    return b"\0" in "a".encode(encoding)


def is_binary(head: bytes, encoding: str, *, has_nul: bool | None = None) -> bool:
    """Whether a file that begins with `head` is binary, or of a format that is no plain text. Text in another encoding
    is not.

    has_nul: whether there is NUL in the file, where that is known; otherwise the head decides.
    """
    has_nul = b"\0" in head if has_nul is None else has_nul
    return kind_of(head) is not None or (has_nul and not is_wide(encoding) and _wide_encoding(head) is None)


def decode(
    raw: bytes,
    encoding: str,
    normalize: str,
    where: str | None = None,
    *,
    errors: Literal["strict", "replace"] = "strict",
) -> str:
    """The text of a file without its byte order mark, its newlines as they are. `where` goes into errors.

    BinaryFile for NUL; DataError for bytes that are not valid in `encoding`, with the likely encoding. errors: what
    becomes of such bytes; "replace" makes U+FFFD of them.
    """
    if b"\0" not in raw:  # several times as fast, which matters for millions of lines
        with contextlib.suppress(UnicodeError):
            text = raw.decode(encoding, errors).removeprefix("\ufeff")
            return in_normal_form(check_text(text, where), normalize)
    return "".join(decode_pieces([raw], encoding, normalize, where, errors=errors))


def decode_pieces(
    pieces: Iterable[bytes],
    encoding: str,
    normalize: str,
    where: str | None = None,
    *,
    errors: Literal["strict", "replace"] = "strict",
) -> Iterator[str]:
    """The same for a file that is read in pieces, which may end inside a character. No piece of the text is empty."""
    texts = _decoded(pieces, encoding, where, errors)
    yield from (text for text in (_composed(texts) if normalize == "nfc" else texts) if text)


def valid_utf8(pieces: Iterable[bytes], where: str | None = None) -> Iterator[bytes]:
    """The same for UTF-8 that stays UTF-8 and is only checked. No piece ends inside a character.

    For ASCII that takes a fifth of the time of decoding and encoding it.
    """
    head, left, n_bytes, begun = b"", b"", 0, False
    for piece in _with_end(pieces):
        head = head or piece
        sample = head if n_bytes == 0 else head + piece
        raw = left + piece
        used = len(raw)
        if b"\0" in piece:
            raise _nul(head, sample, "utf-8", n_bytes + piece.index(b"\0"), where)
        if not raw.isascii():
            try:
                _, used = codecs.utf_8_decode(raw, "strict", not piece)
            except UnicodeDecodeError as error:
                at = n_bytes - len(left) + error.start
                raise _invalid(sample, "utf-8", at, raw[error.start], where) from None
        text, left = raw[:used], raw[used:]
        if not begun:
            text = text.removeprefix(codecs.BOM_UTF8)
        if text:
            yield text
            begun = True
        n_bytes += len(piece)


def _decoded(
    pieces: Iterable[bytes], encoding: str, where: str | None, errors: Literal["strict", "replace"]
) -> Iterator[str]:
    head, n_bytes, n_characters = b"", 0, 0
    decoder: codecs.IncrementalDecoder | None = None
    for piece in _with_end(pieces):
        head = head or piece
        decoder = decoder or codecs.getincrementaldecoder(_with_byte_order(encoding, head))(errors)
        sample = head if n_bytes == 0 else head + piece  # to guess the encoding from
        if b"\0" in piece and not is_wide(encoding):
            raise _nul(head, sample, encoding, n_bytes + piece.index(b"\0"), where)
        begun = n_bytes - len(decoder.getstate()[0])  # where the first character that is not yet decoded begins
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeError as error:
            wrong, start = getattr(error, "object", b""), getattr(error, "start", 0)
            value = wrong[start] if start < len(wrong) else None
            raise _invalid(sample, encoding, begun + start, value, where) from None
        if n_characters == 0:
            text = text.removeprefix("\ufeff")
        yield check_text(text, where, before=n_characters)
        n_bytes += len(piece)
        n_characters += len(text)


def _with_byte_order(encoding: str, head: bytes) -> str:
    """The encoding, with this machine's byte order where a file without a mark has to tell: as bytes.decode does it."""
    name = codecs.lookup(encoding).name
    if name not in ("utf-16", "utf-32") or head.startswith(tuple(mark for mark, marked in _MARKS if marked == name)):
        return name
    return f"{name}-le" if sys.byteorder == "little" else f"{name}-be"


def _with_end(pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield from filter(None, pieces)
    yield b""  # tells the decoder that nothing follows


def _composed(texts: Iterable[str]) -> Iterator[str]:
    """The texts in NFC, as if they were joined: each is cut where no character is composed with one before it."""
    left = ""
    for text in texts:
        left += text
        at = max((found.start() for found in _NEVER_COMPOSED.finditer(left)), default=0)
        yield unicodedata.normalize("NFC", left[:at])
        left = left[at:]
    yield unicodedata.normalize("NFC", left)


def in_normal_form(text: str, normalize: str) -> str:
    """The text in the normal form that `data.normalize` names."""
    return unicodedata.normalize("NFC", text) if normalize == "nfc" else text


def check_text(text: str, where: str | None, *, before: int = 0) -> str:
    """Return the text. BinaryFile for NUL in it, DataError for half a surrogate pair. before: characters before it."""
    if "\0" in text:
        raise _binary(before + text.index("\0"), where)
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # UTF-7 and JSON, say, can encode it
        raise DataError(
            f"character {before + error.start} (U+{ord(text[error.start]):04X}) is half of a surrogate pair. "
            "Correct the text.",
            where,
        ) from None
    return text


def likely_encoding(raw: bytes) -> str | None:
    """Guess the encoding of text that is invalid in another one. None if a guess would mislead."""
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
        return None  # damaged UTF-8: any 8-bit encoding would turn its valid characters into wrong ones
    high = len(raw.translate(None, bytes(range(128))))
    if high * 3 > len(raw):
        return _encoding_of_other_script(raw) if high >= _ENOUGH else None
    try:
        raw.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _encoding_of_other_script(raw: bytes) -> str | None:
    """A guess from how often letters follow each other, in Cyrillic, Greek, Chinese, Japanese, Korean and others."""
    from charset_normalizer import from_bytes  # takes a tenth of a second

    best = from_bytes(raw[:_SAMPLE]).best()
    return None if best is None else best.encoding


def _wide_encoding(raw: bytes) -> str | None:
    """UTF-16 by its mark or by the positions of NULs, UTF-32 by its mark, else None."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return None if name == "utf-8" else name
    head = raw[:HEAD_BYTES]
    for name, empty_half in (("utf-16-le", 1), ("utf-16-be", 0)):
        # The high byte of common characters, such as spaces, is NUL, and no low byte is.
        if b"\0" in head[empty_half::2] and b"\0" not in head[1 - empty_half :: 2] and _is_plain(head, name):
            return name
    return None


def _is_plain(head: bytes, encoding: str) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)  # which may end inside a character
    except UnicodeDecodeError:
        return False
    not_text = ("Cc", "Cn", "Co")  # control characters, unassigned and private code points
    return text != "" and all(char in "\t\n\r\f" or unicodedata.category(char) not in not_text for char in text)


def _binary(at: int, where: str | None) -> BinaryFile:
    return BinaryFile(f"this is not text but binary data: byte {at} is NUL. Choose a text file.", where)


def _nul(head: bytes, sample: bytes, encoding: str, at: int, where: str | None) -> DataError:
    """The error for NUL in what should be text: of a binary file, or of text in a wide encoding."""
    return _binary(at, where) if _wide_encoding(head) is None else _invalid(sample, encoding, at, 0, where)


def _invalid(sample: bytes, encoding: str, at: int, value: int | None, where: str | None) -> DataError:
    """The error for a byte that is not valid: its position in the file and its value, if it is known."""
    guess = likely_encoding(sample)
    advice = "Correct the text, or set data.encoding to its encoding."
    if guess is not None and codecs.lookup(guess).name != codecs.lookup(encoding).name:
        advice = f"It looks like {guess}: use data.encoding={guess}."
    shown = "" if value is None else f" (0x{value:02x})"
    return DataError(f"the text is not valid {encoding} at byte {at}{shown}. {advice}", where)

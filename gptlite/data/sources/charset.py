"""Decoding the bytes of a file strictly, telling text from binary files, and advice on the encoding."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Literal

from gptlite.data.sources.file_formats import kind_of
from gptlite.errors import DataError

HEAD_BYTES = 8192  # of a file are enough to see whether it is binary
# The encodings that people have: among all that there are, a guess from little text is luck.
_COMMON = ["cp1252", "cp1251", "koi8_r", "cp1253", "cp932", "euc_jp", "gb18030", "big5", "euc_kr"]

# Byte order marks. The longer ones come first: that of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class BinaryFile(DataError):
    """A file that contains NUL and so is not text."""

    def __init__(self, where: str | None) -> None:
        super().__init__("this is not text but binary data: it has NUL characters. Choose a text file.", where)


def is_wide(encoding: str) -> bool:
    """Tell whether plain text in `encoding` contains NUL bytes, as UTF-16 does.

    >>> is_wide("utf-16"), is_wide("utf-8")
    (True, False)
    """
    return b"\0" in "a".encode(encoding)


def is_binary(head: bytes, encoding: str) -> bool:
    """Tell from its first bytes whether a file is binary, or of a format that is no plain text."""
    return kind_of(head) is not None or _has_odd_nul(head, head, encoding)


def _has_odd_nul(piece: bytes, head: bytes, encoding: str) -> bool:
    return b"\0" in piece and not is_wide(encoding) and not head.startswith(tuple(_MARKS))


def in_normal_form(text: str, normalize: str) -> str:
    """Return the text in the normal form that `data.normalize` names."""
    return unicodedata.normalize("NFC", text) if normalize == "nfc" else text


def check_text(text: str, where: str | None) -> str:
    """Return the text. BinaryFile for NUL in it, DataError for half a surrogate pair."""
    if "\0" in text:
        raise BinaryFile(where)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # UTF-7 and JSON, say, can encode it
            raise DataError(
                f"the character U+{ord(text[error.start]):04X} is half of a surrogate pair. Correct the text.", where
            ) from None
    return text


def decode(
    raw: bytes,
    encoding: str,
    normalize: str,
    where: str | None = None,
    *,
    errors: Literal["strict", "replace"] = "strict",
) -> str:
    """Return the text of a file without its byte order mark, its newlines as they are. `where` goes into errors.

    BinaryFile for NUL; DataError for bytes that are not valid in `encoding`, with the likely encoding. errors: what
    becomes of such bytes; "replace" makes U+FFFD of them.
    """
    with contextlib.suppress(UnicodeError):  # several times as fast, which matters for millions of lines
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
    """Decode a file that is read in pieces, which may end inside a character. No piece of the text is empty."""
    texts = _decoded(pieces, encoding, where, errors)
    yield from filter(None, _composed(texts) if normalize == "nfc" else texts)


def _decoded(
    pieces: Iterable[bytes], encoding: str, where: str | None, errors: Literal["strict", "replace"]
) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    head, before, n_bytes, begun = b"", b"", 0, False
    for piece in _with_end(pieces):
        head = head or piece
        if _has_odd_nul(piece, head, encoding):
            raise BinaryFile(where)
        pending = decoder.getstate()[0]
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeError as error:
            at = n_bytes - len(pending) + getattr(error, "start", 0)
            raise _invalid(before + piece, encoding, at, where) from None
        before, n_bytes = piece, n_bytes + len(piece)
        if text and not begun:
            text, begun = text.removeprefix("\ufeff"), True
        yield check_text(text, where)


def valid_utf8(pieces: Iterable[bytes], where: str | None = None) -> Iterator[bytes]:
    """Check a file in UTF-8 that stays UTF-8, without its byte order mark. No piece ends inside a character.

    For ASCII that takes a fifth of the time of decoding and encoding it.
    """
    head, before, left, n_bytes, begun = b"", b"", b"", 0, False
    for piece in _with_end(pieces):
        head = head or piece
        if _has_odd_nul(piece, head, "utf-8"):
            raise BinaryFile(where)
        raw = left + piece
        used = len(raw)
        if not raw.isascii():
            try:
                _, used = codecs.utf_8_decode(raw, "strict", not piece)
            except UnicodeDecodeError as error:
                raise _invalid(before + piece, "utf-8", n_bytes - len(left) + error.start, where) from None
        before, n_bytes = piece, n_bytes + len(piece)
        text, left = raw[:used], raw[used:]
        if text and not begun:
            text, begun = text.removeprefix(codecs.BOM_UTF8), True
        if text:
            yield text


def _with_end(pieces: Iterable[bytes]) -> Iterator[bytes]:
    return itertools.chain(filter(None, pieces), [b""])  # the last tells the decoder that nothing follows


def _composed(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts in NFC, as if they were joined: cut before blanks and line ends, which join nothing."""
    left = ""
    for text in texts:
        left += text
        at = max(left.rfind(" "), left.rfind("\n"), 0)
        yield unicodedata.normalize("NFC", left[:at])
        left = left[at:]
    yield unicodedata.normalize("NFC", left)


def _invalid(sample: bytes, encoding: str, at: int, where: str | None) -> DataError:
    """Return the error for a byte that is not valid. at: its position in the file."""
    guess = likely_encoding(sample)
    advice = "Correct the text, or set data.encoding to its encoding."
    if guess is not None and codecs.lookup(guess).name != codecs.lookup(encoding).name:
        advice = f"It may be {guess}: use data.encoding={guess}."
    return DataError(f"the text is not valid {encoding} at byte {at}. {advice}", where)


def likely_encoding(raw: bytes) -> str | None:
    """Guess the encoding of text that is invalid in another one. None if a guess would mislead."""
    if marked := next((name for mark, name in _MARKS.items() if raw.startswith(mark)), None):
        return marked
    text = raw.decode("utf-8", "replace")
    if not (damaged := text.count("\ufffd")):
        return "utf-8"
    if sum(char > "\x7f" for char in text) > 2 * damaged:
        return None  # damaged UTF-8: any 8-bit encoding would turn its valid characters into wrong ones
    if 3 * len(raw.translate(None, bytes(range(128)))) <= len(raw):
        return "cp1252"  # of so few, a guess is luck, and most texts with few others than ASCII are Western European
    from charset_normalizer import from_bytes  # takes a tenth of a second

    best = from_bytes(raw, cp_isolation=_COMMON).best()
    return None if best is None else best.encoding

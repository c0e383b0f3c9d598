"""Decoding the bytes of a file strictly, telling text from binary files, and advice on the encoding."""

from __future__ import annotations

import codecs
import itertools
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Literal

from gptlite.errors import DataError

_BINARY = "this is not text but binary data: it has NUL characters. Choose a text file."
HEAD_BYTES = 8192  # of a file are enough to see whether it is binary
_FEW = 8  # bytes beside ASCII, from which no encoding is guessed
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


def is_binary(head: bytes, encoding: str) -> bool:
    """Tell from its first bytes whether a file has NUL, which no text in its encoding has; UTF-16 has it."""
    is_wide = b"\0" in "a".encode(encoding)
    return b"\0" in head and not is_wide and not head.startswith(tuple(_MARKS))


def in_normal_form(text: str, normalize: str) -> str:
    """Return the text in the normal form that `data.normalize` names."""
    return unicodedata.normalize("NFC", text) if normalize == "nfc" else text


def check_text(text: str, where: str | None) -> str:
    """Return the text. DataError for NUL in it, or half a surrogate pair."""
    if "\0" in text:
        raise DataError(_BINARY, where)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # UTF-7 and JSON, say, can encode it
            raise DataError(
                f"the character U+{ord(text[error.start]):04X} is half of a surrogate pair. Correct the text.", where
            ) from None
    return text


def decode_pieces(
    pieces: Iterable[bytes],
    encoding: str,
    normalize: str,
    where: str | None = None,
    *,
    errors: Literal["strict", "replace"] = "strict",
) -> Iterator[str]:
    """Yield the text of a file that is read in pieces, which may end inside a character. No piece of it is empty.

    The byte order mark is dropped; newlines stay as they are. DataError about `where` for NUL, and for bytes that are
    not valid in `encoding`, with the likely encoding. errors: "replace" makes U+FFFD of such bytes instead.
    """
    texts = _decoded(pieces, encoding, where, errors)
    yield from filter(None, _composed(texts) if normalize == "nfc" else texts)


def _decoded(
    pieces: Iterable[bytes], encoding: str, where: str | None, errors: Literal["strict", "replace"]
) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    before, n_bytes, begun = b"", 0, False
    for piece in itertools.chain(filter(None, pieces), [b""]):  # the last tells the decoder that nothing follows
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
    if is_binary(sample, encoding):
        return DataError(_BINARY, where)
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
    n_others = len(raw.translate(None, bytes(range(128))))
    if n_others < _FEW or 2 * n_others <= len(raw):
        return "cp1252"  # a guess is luck, and most texts with few others than ASCII are Western European
    from charset_normalizer import from_bytes  # takes a tenth of a second

    best = from_bytes(raw, cp_isolation=_COMMON).best()
    return None if best is None else best.encoding

"""Building a tokenizer, loading one from a folder; ids as text."""

from __future__ import annotations

import codecs
import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.formatting import Say, say_nothing
from gptlite.storage.sealed_json import read_sealed
from gptlite.tokenizers.bpe import PATTERN, BpeTokenizer, train_bpe
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.folder import META_FILE, not_a_tokenizer
from gptlite.tokenizers.folder import Tokenizer as Tokenizer
from gptlite.tokenizers.named import NAMES, load_named

if TYPE_CHECKING:
    from gptlite.config.schema import TokenizerSection

Texts = Callable[[], Iterable[str]]


def build(section: TokenizerSection, characters: str, train_texts: Texts, say: Say = say_nothing) -> Tokenizer:
    """Build the tokenizer that a config asks for, or load the one in the folder `from`, which reads no text.

    char takes the `characters` of all text, so that none of the validation text is unknown; bpe learns from
    `train_texts` alone. A named encoding reads neither, and is downloaded if it is missing (StorageError);
    `say` gets the progress of that.
    """
    if section.from_ is not None:
        return load(Path(section.from_))
    if section.kind == "char":
        return CharTokenizer(characters)
    if section.kind == "bpe":
        return train_bpe(train_texts(), section.bpe_vocab_size)
    return load_named(section.kind, say)


def fingerprint_inputs(section: TokenizerSection) -> dict[str, Any]:
    """Return everything but the text that decides which tokenizer `build` makes, as plain JSON values."""
    inputs: dict[str, Any] = {"kind": section.kind}
    if section.from_ is not None:  # the tokenizer itself decides, wherever it lies
        found = load(Path(section.from_))
        inputs |= {"fingerprint": found.fingerprint, "requested_vocab_size": found.requested_vocab_size}
    elif section.kind == "bpe":
        # Another release may break ties between equally frequent pairs differently.
        trainer = f"tokenizers {importlib.metadata.version('tokenizers')}"
        inputs |= {"vocab_size": section.bpe_vocab_size, "pattern": PATTERN, "trainer": trainer}
    return inputs


def load(folder: Path) -> Tokenizer:
    """Load the tokenizer whose `files` are in `folder`, without a network or a cache.

    Raise Damaged if the file that describes it is missing or was changed, RunError if it has another format version.
    """
    path = folder / META_FILE
    fields = read_sealed(path)
    kind = fields.get("kind")
    if kind == CharTokenizer.kind:
        return CharTokenizer.read(fields, path)
    if kind in ("bpe", *NAMES):
        return BpeTokenizer.read(fields, path)
    raise not_a_tokenizer(path, f"there is none of kind {str(kind)[:40]}")


class StreamDecoder:
    """Decodes ids that arrive one at a time, in whole characters. Joined, they equal `Tokenizer.decode`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.token_bytes()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """Return the characters that this id completes; "" if there are none."""
        return self._utf8.decode(self._pieces[token])

    def flush(self) -> str:
        """Return the rest at the end: U+FFFD if a character is incomplete, else ""."""
        return self._utf8.decode(b"", final=True)


def readable(piece: bytes) -> str:
    """Return the text of a token, with newlines, tabs and blanks as they are.

    Parts of characters, control characters and marks that change the direction of writing become escape sequences.

    >>> readable(b"a\\n"), readable(b"\\xe6\\x97"), readable("\\u202e".encode())
    ('a\\n', '\\\\xe6\\\\x97', '\\\\u202e')
    """
    text = piece.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def label(piece: bytes) -> str:
    """Return the text of a token on one line, with a symbol for each blank, newline and tab.

    >>> label(b" the\\n")
    '␣the↵'
    """
    return readable(piece).translate({ord(" "): "␣", ord("\n"): "↵", ord("\t"): "⇥"})


def labels(pieces: Sequence[bytes], ids: Iterable[int], end: int) -> dict[int, str]:
    """Return labels by id. `end` is the id of end-of-text."""
    return {i: "end of text" if i == end else label(pieces[i]) or "no text" for i in ids}

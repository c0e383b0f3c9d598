"""What every tokenizer can do, how one is made, and how it is read back from a folder."""

from __future__ import annotations

import codecs
import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.tokenizers.bpe import PATTERN, BpeTokenizer, train_bpe
from gptlite.tokenizers.char import CharTokenizer
from gptlite.tokenizers.folder import END_OF_TEXT, FORMAT_VERSION, META_FILE, read_meta
from gptlite.tokenizers.named import NAMES, load_named

if TYPE_CHECKING:
    from gptlite.config.schema import TokenizerSection

__all__ = ["END_OF_TEXT", "StreamDecoder", "Tokenizer", "build", "load", "recipe_of"]

Texts = Callable[[], Iterable[str]]


class Tokenizer(Protocol):
    """Text to ids and back. Ids are 0 .. vocab_size - 1; the last is end-of-text, which no text encodes to."""

    @property
    def kind(self) -> str:
        """As in the config: char, bpe, gpt2, ..."""
        ...

    @property
    def vocab_size(self) -> int:
        """The largest id + 1."""
        ...

    @property
    def requested_vocab_size(self) -> int:
        """What was asked for: more than `vocab_size` if the training text had too few merges."""
        ...

    @property
    def eot_id(self) -> int:
        """The id of end-of-text: vocab_size - 1."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hex sha256 over everything that decides ids."""
        ...

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """Ids of a text, (n,). "<|endoftext|>" in it is thirteen plain characters.

        DataError for what has no ids: characters that a char tokenizer does not know, lone surrogates.
        """
        ...

    def known(self, text: str) -> str:
        """The text without what `encode` refuses."""
        ...

    def token_bytes(self) -> Sequence[bytes]:
        """The UTF-8 bytes of each id, vocab_size of them; b"" for end-of-text and for ids that no text can produce."""
        ...

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of all ids, joined. DataError for an id outside the vocabulary."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text of all ids; bytes that are not UTF-8 become U+FFFD. DataError as `decode_bytes`."""
        ...

    def files(self) -> dict[str, bytes]:
        """Name -> content of a folder that `load` and transformers' AutoTokenizer read; equal on every call."""
        ...


def build(section: TokenizerSection, texts: Texts, train_texts: Texts) -> Tokenizer:
    """The tokenizer that a config asks for.

    char takes the characters of `texts`, so that none of the validation text is unknown; bpe learns from
    `train_texts` alone. A named encoding reads neither, and is downloaded where it is missing (StorageError).
    """
    if section.kind == "char":
        return CharTokenizer.of(texts())
    if section.kind == "bpe":
        return train_bpe(train_texts(), section.bpe_vocab_size)
    return load_named(section.kind)


def recipe_of(section: TokenizerSection) -> dict[str, Any]:
    """What, beside the text, decides the tokenizer that `build` makes: plain JSON values."""
    recipe: dict[str, Any] = {"format_version": FORMAT_VERSION, "kind": section.kind}
    if section.kind == "bpe":
        # Another release may break ties between equally frequent pairs in another way.
        trainer = f"tokenizers {importlib.metadata.version('tokenizers')}"
        recipe |= {"vocab_size": section.bpe_vocab_size, "pattern": PATTERN, "trainer": trainer}
    return recipe


def load(folder: Path) -> Tokenizer:
    """The tokenizer whose `files` lie in `folder`; nothing else is read: no network, no cache.

    DataError if a file is missing or was changed, or has another format version.
    """
    meta = read_meta(folder)
    if meta["kind"] == CharTokenizer.kind:
        return CharTokenizer(meta["characters"])
    if meta["kind"] in ("bpe", *NAMES):
        return BpeTokenizer.read(folder, meta)
    raise DataError(f"{folder / META_FILE}: kind = {meta['kind']}: not known here; use the gptlite that wrote it")


class StreamDecoder:
    """Text from ids that arrive one at a time: never half a character, and joined it equals `Tokenizer.decode`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.token_bytes()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The characters that are complete with this id: often one piece of text, sometimes none."""
        return self._utf8.decode(self._pieces[token])

    def flush(self) -> str:
        """What is left at the end: U+FFFD if a character stayed unfinished."""
        return self._utf8.decode(b"", final=True)

"""Byte-pair encoding: trained by Hugging Face's trainer or read from a tokenizer.json, run by tiktoken, saved as ranks.

A BPE first splits text into pieces with a regular expression and then merges bytes inside each piece. The pattern must
split alike in two engines: that of the trainer and of tokenizer.json (Oniguruma), and that of tiktoken (fancy-regex).
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.storage.files import storage_errors
from gptlite.tokenizers.folder import END_OF_TEXT, Tokenizer
from gptlite.tokenizers.huggingface import BYTE_OF, bpe_files, find_merges, for_oniguruma, to_bytes

if TYPE_CHECKING:
    import tiktoken

_OWN = "|".join(
    (
        # the end of "don't", "it's", "we'll", typed or typeset, but not the start of 'text' in quotes
        "['\u2019]" r"(?:[sdmt]|ll|re|ve)(?!\p{L})",
        # a word with the space, dot, underscore or bracket before it; accents and vowel signs stay with their letter
        r"[^\r\n\p{L}\p{M}\p{N}]?\p{L}[\p{L}\p{M}]*+",
        # at most three digits, so that no long number becomes one token
        r" ?\p{N}{1,3}",
        # punctuation with the end of its line; if the next line is indented, the line end belongs to the indentation
        r" ?[^\s\p{L}\p{N}]++(?:[\r\n]++(?!\s))?",
        # white space; a last blank goes with the next word. The bound keeps the time for long runs linear, and the
        # recursion within the stack of tiktoken's engine
        r"\s{1,256}(?:(?!\S)|(?<! ))",
        r"\s",
    )
)

# Radford et al. 2019; llama.cpp calls it "gpt-2"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS = {"gptlite": _OWN, "gpt2": _GPT2}  # by the value of tokenizer.pattern

# Places where a text can be cut: both halves have the ids of the whole. Our pattern and those of the named encodings
# all begin a new piece there, and no piece before looks further ahead.
_LETTER = r"[^\W\d_]"
_CUT = re.compile(
    "|".join(
        (
            r"(?<=\S)(?= \S)",  # before a single blank
            rf"(?<=\S\n)(?={_LETTER})",  # after a single newline
            # before punctuation between letters, in scripts without blanks
            rf"(?<={_LETTER})(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]{_LETTER})",
        )
    )
)
_NEAR = (1 << 8, 1 << 12)  # bytes at the end of a text: the first often have a cut, the second nearly always

_MIN_COUNT = 2  # a pair that occurs only once is not worth a token
_NOT_IN_UTF8 = bytes([0xC0, 0xC1, *range(0xF5, 0x100)])


@dataclass(eq=False)
class BpeTokenizer(Tokenizer):
    """ranks: the bytes of each id, in the order of merging; ids from there to end-of-text are unused."""

    kind: str
    pattern: str
    ranks: tuple[bytes, ...] = field(repr=False)
    vocab_size: int
    requested_vocab_size: int
    # Each thread has its own encoding: with one for all they would wait for each other in tiktoken's regex engine.
    _of_thread: threading.local = field(default_factory=threading.local, init=False, repr=False)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> BpeTokenizer:
        """Return the tokenizer that the `fields` of a META_FILE describe."""
        ranks = tuple(map(base64.b64decode, fields["ranks"].split(" ")))
        return cls(**{**fields, "ranks": ranks})

    def encode(self, text: str | bytes) -> npt.NDArray[np.uint32]:
        """Return the ids of a text, (n,). Raise DataError for lone surrogates and where a named encoding fails."""
        text = text.decode() if isinstance(text, bytes) else text
        try:
            return self._encoding.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError as error:
            raise DataError(
                f"character {error.start} (U+{ord(text[error.start]):04X}) is half of a surrogate pair. "
                "Give text that was decoded without errors."
            ) from error
        except ValueError as error:
            raise DataError(
                f"the tokenizer {self.kind} cannot read a run of a million or more white-space characters. "
                "Shorten it, or use tokenizer.kind=bpe with tokenizer.pattern=gptlite."
            ) from error

    def last_cut(self, text: bytes) -> int:
        return last_cut(text)

    @property
    def pattern_name(self) -> str | None:
        """The value of tokenizer.pattern that asks for this pattern; None for that of another release."""
        return next((name for name, pattern in PATTERNS.items() if pattern == self.pattern), None)

    @property
    def _encoding(self) -> tiktoken.Encoding:
        import tiktoken

        if not hasattr(self._of_thread, "encoding"):
            ranks = {token: rank for rank, token in enumerate(self.ranks)}
            # `encode` allows no special token. With none at all, tiktoken stops at every byte to look for one, and
            # takes half as long again.
            special = {END_OF_TEXT: self.eot_id}
            self._of_thread.encoding = tiktoken.Encoding(
                self.kind, pat_str=self.pattern, mergeable_ranks=ranks, special_tokens=special
            )
        encoding: tiktoken.Encoding = self._of_thread.encoding
        return encoding

    @cached_property
    def _tokens(self) -> list[bytes]:
        possible = (token if len(token) == len(token.translate(None, _NOT_IN_UTF8)) else b"" for token in self.ranks)
        return [*possible, *[b""] * (self.vocab_size - len(self.ranks))]

    @cached_property
    def _fields(self) -> dict[str, Any]:
        ranks = " ".join(base64.b64encode(token).decode() for token in self.ranks)
        sizes = {"vocab_size": self.vocab_size, "requested_vocab_size": self.requested_vocab_size}
        return {"kind": self.kind, "pattern": self.pattern, "ranks": ranks, **sizes}

    @cached_property
    def _for_transformers(self) -> dict[str, bytes]:  # every checkpoint needs it; a large vocabulary takes a second
        return bpe_files(self.ranks, self.pattern, self.eot_id)


def last_cut(text: bytes) -> int:
    """Return the last place where a text in UTF-8 can be cut, in bytes; 0 if there is none."""
    for near in (*_NEAR, len(text)):
        end = text[max(0, len(text) - near) :].decode(errors="ignore")  # it may begin inside a character
        places = [found.start() for found in _CUT.finditer(end)]
        if places:
            return len(text) - len(end[places[-1] :].encode())
    return 0


def train_bpe(texts: Iterable[str], vocab_size: int, pattern: str = _OWN) -> BpeTokenizer:
    """Train a BPE of at most `vocab_size` ids: 256 bytes, merges, end-of-text. Equal texts give equal ids.

    It has fewer ids if the text has too few pairs that occur twice.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    assert vocab_size >= 257, "256 bytes and end-of-text"
    trained = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(pattern), "isolated")
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=_MIN_COUNT,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    in_order = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    merged = tuple(to_bytes(token) for token, _ in in_order[256:])
    ranks = (*(bytes([byte]) for byte in range(256)), *merged)
    return BpeTokenizer("bpe", pattern, ranks, len(ranks) + 1, vocab_size)


def read_foreign(path: Path) -> tuple[BpeTokenizer, Mapping[bytes, int]]:
    """Read the tokenizer.json of a byte-level BPE such as GPT-2's. DataError for a tokenizer of another kind.

    Beside the tokenizer comes the id that each token has there; b"" is end-of-text, if there is one.
    """
    with storage_errors(path, "read"):
        content = path.read_bytes()
    refusal = DataError(
        "this is no byte-level BPE that splits text and merges bytes as that of GPT-2 does, and no other kind can be "
        "read. Use another tokenizer.",
        str(path),
    )
    try:
        fields = json.loads(content)
        model = fields["model"]
        vocab = model["vocab"]
        merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
        alphabet = sorted(BYTE_OF.keys() & vocab.keys(), key=vocab.__getitem__)
        tokens = (*alphabet, *map("".join, merges))
        ranks = tuple(map(to_bytes, tokens))
        ids = dict(zip(ranks, map(vocab.__getitem__, tokens), strict=True))
        added = {token["content"]: token["id"] for token in fields.get("added_tokens", ())}
        numbers = {number for number in ids.values() if type(number) is int and number >= 0}
        pattern = _pattern_of(fields["pre_tokenizer"])
        changes = map(model.get, ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"))
        is_sound = len(numbers) == len(ranks) == len(ids) and len(alphabet) == len(BYTE_OF)
        is_sound = is_sound and [tuple(map(to_bytes, pair)) for pair in merges] == list(find_merges(ranks))
        is_plain = fields.get("normalizer") is None and not any(changes)
    except (ValueError, KeyError, TypeError, AttributeError, DataError):
        raise refusal from None
    if pattern is None or not is_sound or not is_plain:
        raise refusal
    end = (added | vocab).get(END_OF_TEXT)
    size = len(ranks) + 1
    return BpeTokenizer("bpe", pattern, ranks, size, size), ids if end is None else {**ids, b"": end}


def _pattern_of(pre_tokenizer: Mapping[str, Any]) -> str | None:
    """Return the pattern that a pre_tokenizer splits by; None for one that does anything else."""
    match pre_tokenizer:
        case {"type": "ByteLevel", "add_prefix_space": False} if pre_tokenizer.get("use_regex", True):
            return _GPT2
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return next((each for each in PATTERNS.values() if for_oniguruma(each) == regex), None)
    return None

"""Byte-pair encoding: trained here with Hugging Face's trainer, run by tiktoken, saved as a list of ranks.

A BPE first cuts text into pieces with a regular expression and then merges bytes inside each piece. The pattern must
cut alike in two engines: that of the trainer and of tokenizer.json (Oniguruma), and that of tiktoken (fancy-regex).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gptlite.errors import DataError
from gptlite.tokenizers import huggingface
from gptlite.tokenizers.folder import META_FILE, as_json, checked_ids, describe, read_bytes

if TYPE_CHECKING:
    import tiktoken

RANKS_FILE = "ranks.tiktoken"

PATTERN = "|".join(
    (
        # the end of "don't", "it's", "we'll", typed or typeset, but not the start of 'text' in quotes
        "['\u2019]" r"(?:[sdmt]|ll|re|ve)(?!\p{L})",
        # a word with the space, dot, underscore or bracket before it; accents and vowel signs stay with their letter
        r"[^\r\n\p{L}\p{M}\p{N}]?\p{L}[\p{L}\p{M}]*+",
        # at most three digits, so that no long number becomes one token
        r" ?\p{N}{1,3}",
        # punctuation with the end of its line, unless the next line is indented: then that belongs to the indentation
        r" ?[^\s\p{L}\p{N}]++(?:[\r\n]++(?!\s))?",
        # white space; a last blank is left to the word behind it. The bound keeps long runs linear, and within the
        # stack of tiktoken's engine
        r"\s{1,256}(?:(?!\S)|(?<! ))",
        r"\s",
    )
)

# A pair that occurs once in the whole text teaches nothing.
_MIN_COUNT = 2
_BLOCK = 1 << 16  # characters that the trainer cuts at a time
# The pattern always cuts between a newline and a character that is no white space, so cutting there changes nothing.
_LINE_START = re.compile(r"\n(?=\S)")
# In UTF-8 these bytes do not occur.
_NEVER = bytes([0xC0, 0xC1, *range(0xF5, 0x100)])


@dataclass(frozen=True, eq=False)
class BpeTokenizer:
    """`ranks`: the bytes of each id, in the order of merging; ids from there to end-of-text stand for nothing."""

    kind: str
    pattern: str
    ranks: tuple[bytes, ...] = field(repr=False)
    vocab_size: int
    requested_vocab_size: int

    @classmethod
    def read(cls, folder: Path, meta: Mapping[str, Any]) -> BpeTokenizer:
        """The tokenizer that a checked META_FILE describes. DataError if RANKS_FILE is not the one it was made with."""
        path = folder / RANKS_FILE
        data = read_bytes(path)
        if (found := hashlib.sha256(data).hexdigest()) != meta["ranks_sha256"]:
            raise DataError(
                f"{path}: sha256 = {found}: {META_FILE} says {meta['ranks_sha256']}; restore the file from a copy"
            )
        ranks = tuple(base64.b64decode(line.split()[0]) for line in data.splitlines())
        return cls(meta["kind"], meta["pattern"], ranks, meta["vocab_size"], meta["requested_vocab_size"])

    @property
    def eot_id(self) -> int:
        """See Tokenizer."""
        return self.vocab_size - 1

    @property
    def fingerprint(self) -> str:
        """See Tokenizer."""
        return str(self._meta["fingerprint"])

    def encode(self, text: str) -> npt.NDArray[np.uint32]:
        """See Tokenizer. DataError too where a named encoding's pattern is beyond its engine."""
        try:
            # tiktoken is told of no special token, so none can be found in the text
            return self._encoding.encode_to_numpy(text, disallowed_special=())
        except UnicodeEncodeError as error:
            code_point = ord(text[error.start])
            raise DataError(
                f"text: character {error.start} = U+{code_point:04X}: half of a surrogate pair is no character; "
                "give text that was decoded without errors"
            ) from error
        except ValueError as error:
            raise DataError(
                f"text: tokenizer.kind = {self.kind}: a run of a million or more white-space characters is too long "
                "for it; shorten the run, or use tokenizer.kind=bpe"
            ) from error

    def known(self, text: str) -> str:
        """See Tokenizer: lone surrogates alone have no bytes."""
        return text.encode("utf-8", "ignore").decode()

    def token_bytes(self) -> list[bytes]:
        """See Tokenizer."""
        return self._tokens

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """See Tokenizer."""
        return b"".join(map(self._tokens.__getitem__, checked_ids(ids, self.vocab_size).tolist()))

    def decode(self, ids: Iterable[int]) -> str:
        """See Tokenizer."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def files(self) -> dict[str, bytes]:
        """See Tokenizer."""
        return dict(self._files)

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        import tiktoken

        ranks = {token: rank for rank, token in enumerate(self.ranks)}
        return tiktoken.Encoding(self.kind, pat_str=self.pattern, mergeable_ranks=ranks, special_tokens={})

    @cached_property
    def _tokens(self) -> list[bytes]:
        possible = (token if len(token) == len(token.translate(None, _NEVER)) else b"" for token in self.ranks)
        return [*possible, *[b""] * (self.vocab_size - len(self.ranks))]

    @cached_property
    def _ranks_file(self) -> bytes:
        return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(self.ranks))

    @cached_property
    def _meta(self) -> dict[str, Any]:
        return describe(
            self.kind,
            self.vocab_size,
            requested_vocab_size=self.requested_vocab_size,
            pattern=self.pattern,
            ranks_sha256=hashlib.sha256(self._ranks_file).hexdigest(),
        )

    @cached_property
    def _files(self) -> dict[str, bytes]:  # kept: every checkpoint asks, and a large vocabulary takes a second
        saved = {META_FILE: as_json(self._meta), RANKS_FILE: self._ranks_file}
        return saved | huggingface.bpe_files(self.ranks, self.pattern, self.eot_id)


def train_bpe(texts: Iterable[str], vocab_size: int) -> BpeTokenizer:
    """A BPE of at most `vocab_size` ids: 256 bytes, merges, end-of-text. Equal texts give equal ids.

    It has fewer if the text runs out of pairs that occur twice.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    assert vocab_size >= 257, "256 bytes and end-of-text"
    trained = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        min_frequency=_MIN_COUNT,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(_blocks(texts), trainer)
    in_order = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    merged = tuple(huggingface.to_bytes(token) for token, _ in in_order[256:])
    ranks = (*(bytes([byte]) for byte in range(256)), *merged)
    return BpeTokenizer("bpe", PATTERN, ranks, len(ranks) + 1, vocab_size)


def _blocks(texts: Iterable[str]) -> Iterator[str]:
    """The texts in blocks: while it cuts one, the trainer keeps eighty bytes for each of its bytes, and it spreads
    blocks, not the inside of one, over the cores."""
    for text in texts:
        start = 0
        while start < len(text):
            line = _LINE_START.search(text, start + _BLOCK)
            end = line.end() if line else len(text)
            yield text[start:end]
            start = end

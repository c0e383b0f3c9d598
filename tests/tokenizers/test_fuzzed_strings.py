"""Strings of all of Unicode: decoding undoes encoding, and `tokenizers` gives the same ids with our tokenizer.json."""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Callable
from functools import cache

import pytest
import tokenizers

from gptlite.tokenizers.base import Tokenizer, load_named
from gptlite.tokenizers.bpe import BpeTokenizer, train_bpe
from gptlite.tokenizers.char import CharTokenizer

MARKS = [chr(c) for c in range(sys.maxunicode) if unicodedata.category(chr(c)).startswith("M")]
SPACES = [" ", "  ", *"\t\n\r", "\r\n", *"\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u3000\u200b\ufeff\x1c\0"]
NEARLY_SPECIAL = ["<|endoftext|>", "<|endoftext|", "|>", "<|unknown|>", "[CLS]", "</s>", "\u2581", "\u0120"]
WORDS = ["the", "Don't", "we'll", "they\u2019re", "x1", "_name", "3.14", "12345", "na\u00efve", "\u4e2d\u6587"]


def any_character(rng: random.Random) -> str:
    """A code point of any plane, assigned or not."""
    plane = rng.choice([0, 0, 0, 0, 1, 1, 2, 3, rng.randrange(17)])
    point = plane * 0x10000 + rng.randrange(0x10000)
    return chr(point) if not 0xD800 <= point < 0xE000 else chr(point - 0x800)


PARTS: tuple[Callable[[random.Random], str], ...] = (
    any_character,
    lambda rng: chr(rng.randrange(128)),
    lambda rng: chr(rng.randrange(0x3000)) + "".join(rng.choices(MARKS, k=rng.randrange(4))),
    lambda rng: rng.choice(SPACES),
    lambda rng: rng.choice(NEARLY_SPECIAL),
    lambda rng: rng.choice(["", " "]) + rng.choice(WORDS),
    lambda rng: rng.choice([*SPACES, "a", "0", *WORDS, any_character(rng)]) * rng.choice([2, 17, 255, 257, 600]),
)
WEIGHTS = (4, 4, 2, 4, 1, 8, 0.2)


@cache
def fuzzed(n: int) -> tuple[str, ...]:
    """n strings, always the same."""
    rng = random.Random(20240229)
    return tuple("".join(part(rng) for part in rng.choices(PARTS, WEIGHTS, k=rng.randrange(13))) for _ in range(n))


@pytest.fixture(scope="module")
def many_merges() -> BpeTokenizer:
    """A BPE with tokens of all that the strings are made of."""
    tokenizer = train_bpe(fuzzed(40_000)[:6000], 3000)
    assert tokenizer.vocab_size == 3000
    return tokenizer


@pytest.fixture(scope="module")
def every_character() -> CharTokenizer:
    return CharTokenizer("".join(sorted(set().union(*fuzzed(40_000)))))


@pytest.fixture(params=["bpe", "char", "gpt2"])
def ours(request: pytest.FixtureRequest, many_merges: BpeTokenizer, every_character: CharTokenizer) -> Tokenizer:
    if request.param == "gpt2":
        request.getfixturevalue("gpt2_cache")
        return load_named("gpt2")
    return many_merges if request.param == "bpe" else every_character


@pytest.mark.parametrize("n", [2_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_ids_become_the_same_string_again_and_tokenizer_json_gives_the_same_ids(ours: Tokenizer, n: int) -> None:
    theirs = tokenizers.Tokenizer.from_buffer(ours.files()["tokenizer.json"])
    texts = fuzzed(40_000)[:n]
    for text, encoding in zip(texts, theirs.encode_batch_fast(texts), strict=True):  # fast: without offsets
        ids = ours.encode(text)
        assert ours.decode(ids) == text
        assert ours.eot_id not in ids
        assert encoding.ids == ids.tolist(), repr(text)

"""The split pattern and the BPE trained on the user's text."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import regex
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext.openai_public import r50k_pat_str

from gptlite.errors import DataError
from gptlite.tokenizers.bpe import PATTERNS, BpeTokenizer, train_bpe
from gptlite.tokenizers.huggingface import bpe_files

BYTES = tuple(bytes([byte]) for byte in range(256))
OWN, GPT2 = PATTERNS["gptlite"], PATTERNS["gpt2"]
BOTH = pytest.mark.parametrize("pattern", [OWN, GPT2], ids=["gptlite", "gpt2"])


def pieces_in_training(text: str, pattern: str = OWN) -> list[str]:
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return [piece for piece, _ in split.pre_tokenize_str(text)]


def pieces_in_tiktoken(text: str, pattern: str = OWN) -> list[str]:
    """With every part of the text in the vocabulary, each piece is one token."""
    parts = {text[i:j].encode() for i in range(len(text)) for j in range(i + 1, len(text) + 1)} - set(BYTES)
    ranks = {part: rank for rank, part in enumerate([*BYTES, *sorted(parts)])}
    encoding = tiktoken.Encoding("parts", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return [piece.decode() for piece in encoding.decode_tokens_bytes(encoding.encode_ordinary(text))]


@pytest.mark.parametrize(
    "pieces",
    [
        ["don", "'t", " we", "\u2019ll", " '", "90", "s"],
        ["it", "'s", " '", "text", "'", " f", "('", "text", "'"],
        ["cafe\u0301", " \u0928\u092e\u0938\u094d\u0924\u0947", "!"],
        ["in", " 123", "456", "7", "."],
        ["if", " x", ":", "\n       ", " return", " 1", "\n"],
        ["end", ".\n\n", "New", " line", ",\r\n", "next"],
        ["\n\t\t", "x", "(y", ")", " ==", " z"],
        ["a", "   ", " b", "  "],
        ["\u4e2d\u6587", "\u3002", "\u0663\u0664"],
        [" " * 256, " " * 256, " " * 87, " x"],
    ],
)
def test_text_is_split_where_a_reader_would_split_it(pieces: list[str]) -> None:
    assert pieces_in_training("".join(pieces)) == pieces
    if len("".join(pieces)) < 100:
        assert pieces_in_tiktoken("".join(pieces)) == pieces


awkward = st.sampled_from(
    [*"a'\u2019tsl1 \n\r\t.!_", "\u0301", "\u00a0", "\u0928", "\u094d", "\ufe0f", "\u4e2d", "\u0663", "\x1c"]
)


@BOTH
@settings(max_examples=300)
@given(text=st.one_of(st.text(max_size=25), st.lists(awkward, max_size=25).map("".join)))
def test_the_trainer_and_tiktoken_split_alike_and_lose_nothing(pattern: str, text: str) -> None:
    pieces = pieces_in_training(text, pattern)
    assert "".join(pieces) == text
    assert pieces_in_tiktoken(text, pattern) == pieces
    if pattern == GPT2:
        assert pieces_in_tiktoken(text, r50k_pat_str) == pieces


@BOTH
def test_every_character_is_a_letter_a_digit_or_a_blank_to_both_engines_alike(pattern: str) -> None:
    # Tokens of a letter, digit or blank and the first byte of a longer character show whether the two share a piece.
    ranks = (*BYTES, *(before + bytes([lead]) for before in (b"a", b"1", b"\n") for lead in range(0xC2, 0xF5)))
    ours = BpeTokenizer("bpe", pattern, ranks, len(ranks) + 1, len(ranks) + 1)
    theirs = tokenizers.Tokenizer.from_buffer(bpe_files(ranks, pattern, len(ranks))["tokenizer.json"])
    assigned = (chr(c) for c in range(0x80, 0x110000) if unicodedata.category(chr(c)) not in {"Cn", "Co", "Cs"})
    lines = [f"a{c}.1{c}.\n{c}." for c in assigned]
    assert len(lines) > 140_000
    for start in range(0, len(lines), 10_000):
        text = "".join(lines[start : start + 10_000])
        assert ours.encode(text).tolist() == theirs.encode(text).ids


def test_the_most_frequent_pairs_are_merged_first_and_single_ones_never() -> None:
    # ab 4 times, then blank-ab 3 times; abc would come from a pair that occurs once.
    tokenizer = train_bpe(["ab ab ab abc"], 300)
    assert tokenizer.ranks == (*BYTES, b"ab", b" ab")
    assert (tokenizer.vocab_size, tokenizer.requested_vocab_size, tokenizer.eot_id) == (259, 300, 258)
    assert tokenizer.encode("ab abc").tolist() == [256, 257, ord("c")]


def test_text_without_pairs_trains_to_the_bytes() -> None:
    assert train_bpe([], 300).ranks == train_bpe(["", "a"], 300).ranks == BYTES


def test_bytes_that_utf8_does_not_use_have_no_text(bpe: BpeTokenizer) -> None:
    without = [i for i, token in enumerate(bpe.token_bytes()) if not token]
    assert without == [0xC0, 0xC1, *range(0xF5, 0x100), bpe.eot_id]


def test_training_gives_the_same_ids_in_another_process_with_one_thread(repository: Path) -> None:
    text = (repository / "gptlite" / "errors.py").read_text("utf-8")
    code = (
        "from pathlib import Path\nfrom gptlite.tokenizers.bpe import train_bpe\n"
        "print(train_bpe([Path('gptlite/errors.py').read_text('utf-8')] * 3, 500).fingerprint)"
    )
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], cwd=repository, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == train_bpe([text] * 3, 500).fingerprint, done.stderr


def test_an_error_of_the_source_comes_through_training() -> None:
    def texts() -> Iterator[str]:
        yield "abc abc"
        raise DataError("book.txt: bad byte")

    with pytest.raises(DataError, match=r"book\.txt: bad byte"):
        train_bpe(texts(), 300)


@pytest.mark.parametrize("unit", [" ", "\n ", "\t", "a", "7", "!", "\u4e2d", "a\u0301"])
def test_a_million_of_one_character_take_ten_times_as_long_as_a_tenth(unit: str) -> None:
    tokenizer = train_bpe([unit * 1000], 270)
    elapsed = []
    for n in (100_000, 1_000_000):
        text = unit * (n // len(unit)) + "x"
        started_at = time.perf_counter()
        ids = tokenizer.encode(text)
        elapsed.append(time.perf_counter() - started_at)
        assert tokenizer.decode(ids) == text
    assert elapsed[1] < 40 * elapsed[0] + 0.5  # a quadratic one takes a hundred times as long


def test_half_a_surrogate_pair_is_refused(bpe: BpeTokenizer) -> None:
    with pytest.raises(DataError, match=re.escape("character 2 (U+DCFF) is half of a surrogate pair. ")):
        bpe.encode("ab\udcff")


def test_text_that_tiktoken_cannot_split_is_refused() -> None:
    backtracking = BpeTokenizer("gpt2", r"\S+|\s+(?!\S)|\s", BYTES, 257, 257)
    with pytest.raises(DataError, match=r"^the tokenizer gpt2 cannot read a run of a million"):
        backtracking.encode(" " * 1_000_001 + "x")


PRINTABLE = {
    *range(0x21, 0x7F),
    *range(0xA1, 0xAD),
    *range(0xAE, 0x100),
}  # spelled as themselves; the others after them
BYTES_IN_ORDER = sorted(range(256), key=lambda byte: (byte not in PRINTABLE, byte))


def train_slowly(texts: list[str], vocab_size: int, pattern: str) -> list[bytes]:
    """Merge the most frequent pair again and again, as defined by Sennrich et al. 2016; vocab_size - 257 at most.

    Of equally frequent pairs Hugging Face's trainer takes the smallest left id, then the smallest right id.
    """
    pieces = Counter(piece.encode() for text in texts for piece in regex.findall(pattern, text))
    words = [([bytes([byte]) for byte in piece], n) for piece, n in pieces.items()]
    ids = {bytes([byte]): i for i, byte in enumerate(BYTES_IN_ORDER)}
    while len(ids) < vocab_size - 1:
        counts: Counter[tuple[bytes, bytes]] = Counter()
        for word, n in words:
            for pair in pairwise(word):
                counts[pair] += n
        best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]), default=None)
        if best is None or counts[best] < 2:
            break
        ids.setdefault(b"".join(best), len(ids))
        words = [(merge(word, best), n) for word, n in words]
    return list(ids)[256:]


def merge(word: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """The word with the pair joined, from left to right."""
    merged: list[bytes] = []
    at = 0
    while at < len(word):
        joined = tuple(word[at : at + 2]) == pair
        merged.append(word[at] + word[at + 1] if joined else word[at])
        at += 2 if joined else 1
    return merged


ALPHABETS = (
    "ab",
    "aab \n",
    "abcdefgh  \n.,'",
    "The cat's 12 mats, we'll sit. \n\t",
    "()[]{}=_:# \n    self.x0",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440,",
    "\u4f60\u597d\u4e16\u754c\uff0c\u3002 a",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "e\u0301a\u0308\u0645\u0631\u062d\u0628\u0627 \U0001f600\u200d\u2764\ufe0f",
    "0123456789 -+.",
)


def random_corpus(seed: int) -> tuple[list[str], int]:
    """Documents of random words, a few of them frequent, and the size of a vocabulary."""
    rng = random.Random(seed)
    alphabet = ALPHABETS[seed % len(ALPHABETS)]
    words = ["".join(rng.choices(alphabet, k=rng.randint(1, 12))) for _ in range(rng.randint(2, 60))]
    weights = [1 / (i + 1) for i in range(len(words))]
    documents = [rng.choice(["", " ", "\n"]).join(rng.choices(words, weights, k=rng.randint(0, 60))) for _ in range(6)]
    return documents, rng.choice([257, 260, 300, 360])


@pytest.mark.parametrize("seed", range(50))
def test_the_vocabulary_is_that_of_the_definition(seed: int) -> None:
    texts, vocab_size = random_corpus(seed)
    pattern = (OWN, GPT2)[seed // len(ALPHABETS) % 2]
    assert list(train_bpe(texts, vocab_size, pattern).ranks[256:]) == train_slowly(texts, vocab_size, pattern)

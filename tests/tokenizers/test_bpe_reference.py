"""The trained vocabulary against a trainer written from the definition, slow and without any of the same code.

Sennrich et al. 2016: count the pairs of neighbours in all pieces of the text, merge the most frequent one everywhere,
and repeat. Of equally frequent pairs Hugging Face's trainer takes the one with the smallest left id, then the smallest
right id (`impl Ord for Merge` in tokenizers/src/models/bpe/trainer.rs). Its ids of single bytes are in the order of the
characters that spell them; a merged token gets the next id, unless its bytes have one already.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
import regex

from gptlite.tokenizers.bpe import PATTERN, train_bpe

PRINTABLE = {
    *range(0x21, 0x7F),
    *range(0xA1, 0xAD),
    *range(0xAE, 0x100),
}  # spelled as themselves; the others after them
BYTES_IN_ORDER = sorted(range(256), key=lambda byte: (byte not in PRINTABLE, byte))


def train_slowly(texts: list[str], vocab_size: int) -> list[bytes]:
    """The merged tokens, at most vocab_size - 257, in the order of merging."""
    pieces = Counter(piece.encode() for text in texts for piece in regex.findall(PATTERN, text))
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
    assert list(train_bpe(texts, vocab_size).ranks[256:]) == train_slowly(texts, vocab_size)


def test_of_equally_frequent_pairs_the_one_with_the_smaller_ids_comes_first() -> None:
    # "cd", "ab", "ax" and "\n\x0b" twice each; printable bytes have smaller ids than white space.
    assert train_bpe(["cd", "ab", "ax", "\n\x0b"] * 2, 300).ranks[256:] == (b"ab", b"ax", b"cd", b"\n\x0b")

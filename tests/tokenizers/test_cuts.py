"""Places where a text may be cut: no pattern sees them, so both halves have the ids of the whole."""

from __future__ import annotations

import itertools
import random

import pytest

from gptlite.tokenizers.bpe import _CUT, PATTERNS, BpeTokenizer, last_cut, train_bpe

# What the patterns treat differently: letters, marks, digits, punctuation, blanks and line ends of all kinds.
PIECES = (
    *("a", "Zebra", "é", "e\u0301", "ß", "\u01c5", "ж", "日本", "ไทย", "\u0e47", "नमस्ते", "\u094d", "ª", "²", "Ⅷ", "٣"),
    *("1", "1234", "'s", "'", "\u2019ll", ".", "...", "!?", "//", "_", "(", '"', "😀", "\u200d"),
    *("\u3002", "\uff0c", "\u3001", "\uff01", "\uff1a", "\uff1b", "\uff1f"),
    *(" ", " ", " ", "  ", "\n", "\n", "\n\n", "\r\n", "\r", "\t", "\u00a0", "\u2028", "\u3000", "\x1c", "\x85"),
)
# Patterns as they are written by those who made them; the ids of this test's own merges show where pieces begin.
CL100K = "|".join(
    (
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?+\p{L}++",
        r"\p{N}{1,3}+",
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
        r"\s++$",
        r"\s*[\r\n]",
        r"\s+(?!\S)",
        r"\s",
    )
)
O200K = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def awkward(rng: random.Random, n: int) -> str:
    return "".join(rng.choice(PIECES) for _ in range(n))


@pytest.fixture(scope="module")
def ranks() -> tuple[bytes, ...]:
    """Merges of any neighbours at all, as a text without pieces would have them."""
    rng = random.Random(0)
    found = dict.fromkeys(bytes([byte]) for byte in range(256))
    for _ in range(3000):
        raw = awkward(rng, 2).encode()
        found |= dict.fromkeys(raw[:size] for size in range(2, len(raw) + 1))
    return tuple(found)


@pytest.mark.parametrize(
    "pattern", [*PATTERNS.values(), GPT2, CL100K, O200K], ids=[*PATTERNS, "r50k", "cl100k", "o200k"]
)
def test_no_pattern_sees_a_cut(pattern: str, ranks: tuple[bytes, ...]) -> None:
    tokenizer = BpeTokenizer("bpe", pattern, ranks, len(ranks) + 1, len(ranks) + 1)
    rng = random.Random(1)
    cuts = 0
    for _ in range(5000):
        text = awkward(rng, rng.randrange(2, 14))
        whole = tokenizer.encode(text).tolist()
        for at in (found.start() for found in _CUT.finditer(text)):
            assert tokenizer.encode(text[:at]).tolist() + tokenizer.encode(text[at:]).tolist() == whole, (text, at)
            cuts += 1
    assert cuts > 500


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("one two", 3),
        ("one\ntwo", 4),
        ("日本。これ", 2),
        ("one  two", 0),
        ("word", 0),
        ("a b" + "x" * 5000, 1),
        ("", 0),
    ],
)
def test_the_last_cut_is_between_words_lines_and_clauses(text: str, at: int) -> None:
    assert last_cut(text.encode()) == len(text[:at].encode())


def test_the_last_cut_is_found_wherever_it_is() -> None:
    for before, behind in itertools.product(range(4), (0, 1, 253, 254, 255, 256, 4094, 4095, 4096, 9000)):
        text = "é" * before + "an\u00ef bé" + "é" * (behind // 2) + "x" * (behind % 2)
        assert last_cut(text.encode()) == len(("é" * before + "anï").encode()), (before, behind)


def test_a_bpe_learns_the_same_from_text_in_blocks() -> None:
    text = awkward(random.Random(3), 3000)
    whole = train_bpe([text], 500)
    at = last_cut(text[: len(text) // 2].encode())
    halves = text.encode()[:at].decode(), text.encode()[at:].decode()
    assert train_bpe(halves, 500).ranks == whole.ranks
    assert len(whole.ranks) > 400

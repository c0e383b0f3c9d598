"""The part of a large text that a BPE is trained on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from gptlite.tokenizers import bpe_sample as module
from gptlite.tokenizers.bpe import PATTERN, train_bpe
from gptlite.tokenizers.bpe_sample import sample
from gptlite.tokenizers.cuts import CUT

SPLIT = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated")


def pieces(texts: list[str]) -> list[str]:
    return [piece for text in texts for piece, _ in SPLIT.pre_tokenize_str(text)]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", 10)


def lines(n: int) -> list[str]:
    """Documents of 16 bytes in 10 characters each, which are one block each."""
    return [f"{i:07}\u20ac\u20ac\u20ac" for i in range(n)]


def test_a_text_within_the_bounds_is_used_whole_and_its_documents_stay_apart() -> None:
    texts = ["a long text, " * 20_000, "", "short", "\n", "words without end" * 10]
    parts = list(sample(texts))
    assert "".join(parts) == "".join(texts)
    assert parts[-3:] == ["short", "\n", "words without end" * 10]


awkward = st.sampled_from(
    [*"a'\u2019ts1  \n\n\r\t.!_", "\u0301", "\u00a0", "\u0085", "\u200b", "\u2028", "\x1c", "\u4e2d"]
)


@given(st.lists(awkward, max_size=60).map("".join))
def test_a_text_is_cut_where_the_pattern_splits_it(text: str) -> None:
    places = [found.start() for found in CUT.finditer(text)]
    parts = [text[start:stop] for start, stop in pairwise([0, *places, len(text)])]
    assert pieces(parts) == pieces([text])


@pytest.mark.usefixtures("small_blocks")
def test_of_a_large_text_equally_spaced_blocks_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_BYTES", 1000 * (16 + 64))
    assert list(sample(lines(1000))) == lines(1000)
    assert list(sample(lines(1001))) == lines(1001)[::2]
    assert list(sample(lines(100_000))) == lines(100_000)[::128]  # 782 of them; every 64th would be 1,563


@pytest.mark.usefixtures("small_blocks")
def test_the_different_words_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORD_BYTES", 1000)
    words = [f"{'abcdefghij'[i % 10]}{chr(0x4E00 + i)}{chr(0x4E00 + i)}" for i in range(3000)]  # of 7 bytes
    taken = list(sample(f"{word} same1234" for word in words))
    assert 500 < 7 * len(taken) <= 1000 - len("same")
    assert len(list(sample([f"{words[0]} same1234"] * 3000))) == 3000


@pytest.mark.usefixtures("small_blocks")
def test_short_documents_are_sampled_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    # Questions and answers in turns: every second document would be questions alone.
    monkeypatch.setattr(module, "SAMPLE_BYTES", 500 * (5 + 64))
    taken = list(sample(["who??", "you!!"] * 500))
    assert taken == ["who??", "you!!"] * 250


@pytest.mark.parametrize("text", ["x" * 300_000, "ab " + "\u4e2d" * 300_000, " " * 300_000])
def test_a_text_without_a_place_to_cut_is_cut_anyway(text: str) -> None:
    parts = list(sample([text]))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 1 << 17


def test_the_sample_is_read_once_and_in_order() -> None:
    def texts() -> Iterator[str]:
        yield from ("one ", "two ")
        raise ValueError("the end")

    with pytest.raises(ValueError, match="the end"):
        list(sample(texts()))


def test_a_vocabulary_of_a_sample_needs_about_as_many_tokens(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    text = "".join(path.read_text("utf-8") for path in sorted((repository / "gptlite").rglob("*.py")))
    held_out = "".join(path.read_text("utf-8") for path in sorted((repository / "tests").rglob("*.py")))
    whole = train_bpe([text], 1000)
    monkeypatch.setattr(module, "_BLOCK", 1 << 12)
    monkeypatch.setattr(module, "SAMPLE_BYTES", len(text) // 3)
    sampled = train_bpe([text], 1000)
    assert sampled.ranks != whole.ranks
    assert len(sampled.encode(held_out)) == pytest.approx(len(whole.encode(held_out)), rel=0.05)


# A text of 50 MB, and a tenth of each bound. `scripts/bench prepare` measures the real ones.
MEMORY = """
import resource, sys
from gptlite.tokenizers import bpe_sample
from gptlite.tokenizers.bpe import train_bpe

for bound in ("SAMPLE_BYTES", "WORD_BYTES", "_BLOCK"):
    setattr(bpe_sample, bound, getattr(bpe_sample, bound) // 10)

def texts(text):
    # Each has words that no other has.
    for n in range(50_000_000 // len(text)):
        yield text.replace("e", chr(0x3B1 + n % 1000)).replace("s", chr(0x4E00 + n))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

train_bpe(["ab ab"], 300)
text = open(sys.argv[1], encoding="utf-8").read()
text = text[: len(text) // 10]
if sys.argv[2] == "documents":
    given = texts(text)
else:
    given = [text.replace("\\n", " ") * (50_000_000 // len(text))]
before = peak()
print(train_bpe(given, 1024).vocab_size, peak() - before)
"""


# Without the bound of words the documents take 68 MiB or more, without that of text the line takes 54.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "at_most"), [("documents", 50), ("one line", 40)])
def test_training_on_a_large_text_takes_bounded_memory(
    kind: str, at_most: int, tmp_path: Path, repository: Path
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(path.read_text("utf-8") for path in sorted((repository / "gptlite").rglob("*.py"))))
    done = subprocess.run([sys.executable, "-c", MEMORY, str(book), kind], capture_output=True, text=True, check=True)
    vocab_size, mebibytes = map(int, done.stdout.split())
    assert vocab_size == 1024
    assert mebibytes < at_most

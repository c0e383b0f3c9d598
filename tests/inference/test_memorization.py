from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.tokens import TokenArray
from gptlite.data.preparing.prepare import prepare
from gptlite.inference.memorization import Copied, measure_memorisation, take_excerpts
from gptlite.tokenizers.bpe import train_bpe
from gptlite.tokenizers.char import CharTokenizer


class Parrot:
    """A model that generates given texts."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def samples(self, prompt: str, params: object) -> list[SimpleNamespace]:
        made = [SimpleNamespace(text=text) for text in self._texts]
        for sample in made:
            sample.whole = lambda sample=sample: sample
        return made


def test_the_share_counts_the_characters_in_stretches_of_twenty_or_more(tmp_path: Path) -> None:
    letters = "".join(np.random.default_rng(0).choice(list("abcdefgé"), 4000))
    (tmp_path / "text.txt").write_text(letters, "utf-8")
    prepared = prepare(DataSection(source=str(tmp_path / "text.txt"), dir=str(tmp_path)), TokenizerSection(kind="char"))
    train = letters[: prepared.manifest.train.tokens]
    parrot = Parrot("-" * 30 + train[500:540] + "-" * 30, train[-25:] + train[:19], "x" * 56)
    samples, validation = measure_memorisation(parrot, prepared)  # type: ignore[arg-type]
    assert samples == Copied(200, 40 + 25, train[500:540])
    assert samples.share == pytest.approx(0.325)
    # Two hundred random letters from the end, where no such stretch repeats.
    assert (validation.characters, validation.verbatim) == (200, 0)


def test_excerpts_come_from_all_of_a_text_and_cross_no_documents() -> None:
    tokenizer = CharTokenizer("0123456789")
    documents = ["0123456789" * 5, "9876543210" * 5]
    ids = [i for document in documents for i in (tokenizer.eot_id, *tokenizer.encode(document))]
    text = TokenArray(np.array(ids, np.uint32), "val")
    excerpts = [excerpt for excerpt in take_excerpts(text, tokenizer, [30, 4, 30]) if excerpt]
    # From the places 0, 34 and 68 of 102: the second is in the first document, the third in the second.
    assert excerpts == [documents[0][:30], documents[0][33:37], documents[1][16:46]]
    across = [excerpt for excerpt in take_excerpts(text, tokenizer, [10, 25, 3]) if excerpt]
    assert across == [documents[0][:10], documents[0][33:50], documents[1][:8], documents[1][16:19]]


def test_excerpts_are_whole_characters() -> None:
    tokenizer = train_bpe(["abc"], 257)  # bytes
    text = TokenArray(tokenizer.encode("é日é日é日é日"), "val")
    # Twenty bytes, 2 and 3 in turn: the second excerpt begins at byte 6, inside an é, the third at 13, inside a 日.
    assert [*take_excerpts(text, tokenizer, [2, 2, 2])] == ["é日", "日é", "é日"]

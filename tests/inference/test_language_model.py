"""The arguments of `LanguageModel.generate` are keys of the config's sample section, with its defaults and checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from random_gpt import language_model

from gptlite.config.schema import ModelSection
from gptlite.config.training import SampleSection
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import ConfigError
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.tokenizers.char import CharTokenizer

TOKENIZER = CharTokenizer("abcdefg")
VALUES = {"max_new_tokens": 9, "temperature": 1.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2}


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    cfg = ModelSection(n_layer=1, n_head=1, n_embd=4, block_size=8)
    return language_model(GPT(cfg, TOKENIZER.vocab_size, rng=torch.Generator().manual_seed(0)), TOKENIZER)


def test_every_argument_acts_as_the_key_of_the_section(model):
    values = {**VALUES, "stop": ["ab"], "stop_tokens": [3], "seed": 7}
    [sample] = model.samples("abc", SampleSection(**values))
    assert model.generate("abc", **values) == sample.whole().text
    texts = [model.generate("abc", **{**VALUES, "seed": seed}) for seed in range(50)]
    assert len(set(texts)) > 40
    assert any("ab" in text for text in texts)
    assert not any("ab" in model.generate("abc", **VALUES, seed=seed, stop=("ab",)) for seed in range(50))
    assert not any("d" in model.generate("abc", **VALUES, seed=seed, stop_tokens=(3,)) for seed in range(50))


def test_numpy_numbers_are_numbers_and_the_defaults_are_those_of_the_section(model):
    plain = model.generate("abc", max_new_tokens=9, top_k=3, temperature=1.5, stop_tokens=[3])
    assert plain == model.generate(
        "abc", max_new_tokens=np.int64(9), top_k=np.int32(3), temperature=np.float32(1.5), stop_tokens=np.array([3])
    )
    assert model.generate("abc") == next(model.samples("abc", SampleSection())).whole().text
    best = model.search("abc", SampleSection(beams=4, max_new_tokens=5))[0][0]
    assert model.generate("abc", beams=4, max_new_tokens=5) == best


def test_all_refused_values_are_named_at_once(model):
    bad = {"max_new_tokens": 0, "temperature": -1.0, "top_k": 0, "top_p": 1.5, "min_p": 0.0, "repetition_penalty": -2.0}
    bad |= {"stop": ("a", ""), "seed": -1, "temprature": 1.0}
    with pytest.raises(ConfigError) as refused:
        model.generate("abc", **bad)
    assert {str(problem).partition(":")[0] for problem in refused.value.problems} == set(bad)
    with pytest.raises(ConfigError, match=r"^n: generate returns one text\."):
        model.generate("abc", n=2)


def test_ids_without_text_are_suppressed_and_end_of_text_if_the_model_never_learned_it(model):
    assert model.suppressed.tolist() == [False] * 7 + [True]
    knows = replace(model, start_id=TOKENIZER.eot_id)
    assert knows.suppressed.tolist() == [False] * 8


@pytest.mark.parametrize("token", [-1, TOKENIZER.vocab_size])
def test_a_stop_token_outside_the_vocabulary_is_refused(model, token):
    with pytest.raises(ConfigError, match="stop_tokens"):
        model.generate("abc", stop_tokens=[token])


def test_a_search_returns_the_n_best_texts(model):
    found = model.search("abc", SampleSection(beams=5, n=5, max_new_tokens=4))
    assert [text for text, _ in found][:2] == [
        text for text, _ in model.search("abc", SampleSection(beams=5, n=2, max_new_tokens=4))
    ]


@pytest.mark.parametrize("variant", ["no_mask", None])
def test_the_score_of_documents_does_not_depend_on_the_batch_size(variant):
    cfg = ModelSection(n_layer=2, n_head=1, n_embd=8, block_size=8, variant=variant, init="torch")
    gpt = GPT(cfg, TOKENIZER.vocab_size, rng=torch.Generator().manual_seed(0))
    model = language_model(gpt, TOKENIZER, TOKENIZER.eot_id)
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 7, rng.integers(1, 20)).tolist() for _ in range(40)]
    ids = TokenArray(np.array([i for each in documents for i in (TOKENIZER.eot_id, *each)], np.uint32), "val")
    one_by_one = model.score_tokens(ids, batch_size=1)
    for batch_size in (2, 7, 200):
        score = model.score_tokens(ids, batch_size=batch_size)
        assert (score.tokens, score.bytes) == (one_by_one.tokens, one_by_one.bytes)
        assert score.loss == pytest.approx(one_by_one.loss, rel=1e-5)

"""Exposure bias, against a loop that reads one prefix after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_gpt import language_model, random_gpt

from gptlite.course import exposure_bias
from gptlite.course.exposure_bias import difference, measure_exposure_bias
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import ConfigError, DataError
from gptlite.inference.language_model import LanguageModel
from gptlite.seeds import mix
from gptlite.tokenizers.char import CharTokenizer

TOKENIZER = CharTokenizer("abcdefg")
TEXT = TokenArray(np.random.default_rng(0).integers(0, 7, 95).astype(np.uint32))


def model_of(*, start_id: int = 0, **values) -> LanguageModel:
    gpt = random_gpt(TOKENIZER.vocab_size, spread=1.0, **{"n_layer": 1, "block_size": 9, **values})
    return language_model(gpt, TOKENIZER, start_id)


@pytest.mark.parametrize("start_id", [0, TOKENIZER.eot_id])
def test_the_scores_are_those_of_a_loop_token_by_token(start_id, monkeypatch):
    model = model_of(start_id=start_id)
    monkeypatch.setattr(exposure_bias, "MOST_WINDOWS", 5)
    found = measure_exposure_bias(model, TEXT, batch_size=2)
    assert found.prefix == 4
    windows = [TEXT.ids[start : start + 10].tolist() for start in (0, 21, 42, 63, 85)]
    never = [] if start_id == TOKENIZER.eot_id else [TOKENIZER.eot_id]

    def logprobs(ids: list[int]) -> torch.Tensor:
        return torch.log_softmax(model.gpt(torch.tensor([ids]))[0, -1], dim=-1)

    for i, window in enumerate(windows):
        rng, own = np.random.default_rng(mix(0, i)), window[:1]
        while len(own) < 4:
            p = logprobs(own).exp().numpy()
            p[never] = 0
            own.append(int(np.flatnonzero(p.cumsum() > rng.random() * p.sum())[0]))
        prefixes = {"true": window[:4], "own": own, "other": windows[(i - 2) % 5][:4]}
        for name, prefix in prefixes.items():
            expected = [float(logprobs([*prefix, *window[4:j]])[window[j]]) for j in range(4, 10)]
            np.testing.assert_allclose(getattr(found, name)[i], expected, rtol=1e-6, err_msg=name)
    assert (found.own != found.true).any()


def test_a_difference_has_the_interval_of_a_hand_calculation():
    # The windows differ by 1 and by 3: the mean is 2, the deviation sqrt 2, and that of the mean 1.
    a, b = np.array([[2.0, 0.0], [5.0, 3.0]]), np.array([[0.0, 0.0], [1.0, 1.0]])
    assert difference(a, b) == pytest.approx({"mean": 2.0, "margin": 1.96})


def test_what_is_too_short_is_refused():
    with pytest.raises(DataError, match=r"the text has 19 tokens\. At least 20 are needed, two windows of 10"):
        measure_exposure_bias(model_of(), TokenArray(TEXT.ids[:19]))
    with pytest.raises(ConfigError, match=r"the model reads 3 tokens\. At least 4 are needed"):
        measure_exposure_bias(model_of(block_size=3), TEXT)

"""Attention steps and token scores against numpy, the score of the text, and a loop over single tokens."""

from __future__ import annotations

import math

import numpy as np
import numpy_gpt
import pytest
import torch
from random_gpt import language_model, random_gpt

from gptlite.compute.device import Compute
from gptlite.inference.inspect import attention_steps, position_table, record_attention, score_each_token
from gptlite.inference.language_model import LanguageModel
from gptlite.tokenizers.char import CharTokenizer

TOKENIZER = CharTokenizer("abcdefg")
CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
IDS = [1, 5, 0, 0, 6, 2]


def model(*, ends: bool = False, **values) -> LanguageModel:
    gpt = random_gpt(TOKENIZER.vocab_size, dtype=torch.float32, **values)
    return language_model(gpt, TOKENIZER, TOKENIZER.eot_id if ends else 0)


@pytest.mark.parametrize(
    "values",
    [{}, {"scale_attention": False}, {"norm": "post", "bias": True}, {"position": "sinusoidal"}, {"position": "none"}],
    ids=str,
)
def test_every_step_is_that_of_the_queries_keys_and_values_worked_out_in_numpy(values):
    gpt = model(**values).gpt
    projected: list[np.ndarray] = []
    for block in gpt.blocks:
        block.attn.qkv.register_forward_hook(lambda *call: projected.append(call[-1][0].numpy().astype(np.float64)))
    layers = attention_steps(gpt, IDS)
    assert len(layers) == len(projected) == 2
    divisor = 1.0 if values.get("scale_attention") is False else 2.0  # heads of 8 / 2 = 4 numbers
    for layer, qkv in zip(layers, projected, strict=True):
        for head in range(2):
            q, k, v = (qkv[:, part * 8 + head * 4 :][:, :4] for part in range(3))
            scores = q @ k.T / divisor
            masked = [[scores[t, s] if s <= t else -math.inf for s in range(6)] for t in range(6)]
            exponentials = np.exp(masked)
            weights = exponentials / exponentials.sum(-1, keepdims=True)
            for got, expected in (
                (layer.scores, scores),
                (layer.masked, masked),
                (layer.weights, weights),
                (layer.values, v),
                (layer.heads, weights @ v),
            ):
                np.testing.assert_allclose(got[head], expected, rtol=1e-4, atol=1e-6)


def test_recording_leaves_the_model_as_it_was_also_after_an_error():
    gpt = model().gpt
    before = [block.attn.attend for block in gpt.blocks]
    logits = gpt(torch.tensor([IDS]))
    attention_steps(gpt, IDS)
    with pytest.raises(ZeroDivisionError), record_attention(gpt):
        raise ZeroDivisionError
    assert [block.attn.attend for block in gpt.blocks] == before
    assert torch.equal(gpt(torch.tensor([IDS])), logits)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
def test_the_position_table_is_that_of_the_equations_and_the_one_that_the_model_adds(position):
    gpt, inputs = model(position=position).gpt, []
    gpt.blocks[0].register_forward_pre_hook(lambda block, args: inputs.append(args[0][0]))
    with torch.no_grad():
        gpt(torch.tensor([IDS]))
    added = (inputs[0] - gpt.token_embedding.weight.detach()[IDS]).numpy()
    table = position_table(gpt)
    if position == "none":
        assert table is None
        assert not added.any()
    else:
        weights = {name: p.detach().numpy() for name, p in gpt.named_parameters()}
        expected = numpy_gpt.position_table(weights, gpt.cfg.model_dump(), len(IDS))
        np.testing.assert_allclose(table, expected, rtol=0, atol=1e-7)
        np.testing.assert_allclose(added, expected, rtol=0, atol=1e-6)


TEXT = "badcafefeedabcdefgabbaface"  # four windows of six tokens, and a rest


@pytest.mark.parametrize("ends", [False, True])
def test_the_scores_of_the_tokens_add_up_to_that_of_the_text(ends):
    lm = model(ends=ends)
    scores = score_each_token(lm, lm.tokens_to_score(TEXT))
    score = lm.score(TEXT)
    assert scores.nats.sum() == pytest.approx(score.nats, rel=1e-6)
    assert len(scores.ids) == score.tokens
    assert TOKENIZER.decode(scores.ids) == (TEXT if ends else TEXT[1:])


def test_the_score_rank_and_top_ids_of_each_token_are_those_of_a_loop_over_single_tokens():
    lm = model()
    ids = lm.encode(TEXT)
    scores = score_each_token(lm, lm.tokens_to_score(TEXT), batch_size=3)
    for i in range(1, len(ids)):
        start = (i - 1) // 6 * 6
        p = torch.softmax(lm.gpt(torch.tensor([ids[start:i]]))[0, -1], dim=-1).tolist()
        by_probability = sorted(range(8), key=lambda token: -p[token])
        assert scores.ids[i - 1] == ids[i]
        assert scores.nats[i - 1] == pytest.approx(-math.log(p[ids[i]]), rel=1e-4)
        assert scores.ranks[i - 1] == 1 + by_probability.index(ids[i])
        assert scores.top_ids[i - 1].tolist() == by_probability[:5]
        assert scores.top_probabilities[i - 1] == pytest.approx([p[token] for token in by_probability[:5]], rel=1e-4)

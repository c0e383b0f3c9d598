from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from random_gpt import random_gpt

from gptlite.config.training import SampleSection
from gptlite.inference.engine import DecodingBatch
from gptlite.inference.generate import Step, decode, generate_batch
from gptlite.model.gpt import GPT
from gptlite.tokenizers.char import CharTokenizer

V = 7
NONE_SUPPRESSED = np.zeros(V, np.bool_)


def gpt(**values) -> GPT:
    return random_gpt(V, **values)


def decode_ids(
    model: GPT, prompts, params: SampleSection, seeds=None, suppressed=NONE_SUPPRESSED, end=-1
) -> list[list[int]]:
    """The tokens that `decode` adds to each prompt, up to `end`."""
    rngs = [np.random.default_rng(seed) for seed in seeds or range(len(prompts))]
    written, active = [[] for _ in prompts], set(range(len(prompts)))
    for step in decode(model, prompts, params, rngs=rngs, suppressed=suppressed, active=active):
        for sample, token in zip(step.samples, step.tokens, strict=True):
            if token == end:
                active.remove(sample)
            else:
                written[sample].append(token)
    return written


def samples_of(prompts, params, seeds, n_top_logprobs=0, model=None):
    tokenizer = CharTokenizer("abcdef")
    return generate_batch(
        model or gpt(),
        prompts,
        params,
        seeds=seeds,
        suppressed=NONE_SUPPRESSED,
        tokenizer=tokenizer,
        n_top_logprobs=n_top_logprobs,
    )


def test_suppressed_ids_are_never_drawn():
    model = gpt()
    suppressed = np.array([i % 2 == 0 for i in range(V)])
    [ids] = decode_ids(model, [[1]], SampleSection(max_new_tokens=200, temperature=5.0), suppressed=suppressed)
    assert len(ids) == 200
    assert all(i % 2 == 1 for i in ids)


PROMPTS = [[1], [2, 3, 4], [5] * 9, [1], [0, 6]]


@pytest.mark.parametrize("block_size", [1, 2, 6, 64])
@pytest.mark.parametrize(
    "params",
    [
        SampleSection(max_new_tokens=40, temperature=1.0),
        SampleSection(max_new_tokens=40, temperature=0.0),
        SampleSection(max_new_tokens=40, temperature=1.5, top_k=3, top_p=0.9),
        SampleSection(max_new_tokens=1),
    ],
    ids=str,
)
def test_samples_decoded_together_equal_those_decoded_alone(block_size, params):
    model = gpt(block_size=block_size)
    together = decode_ids(model, PROMPTS, params, seeds=[3, 1, 4, 1, 5], end=V - 1)
    alone = [decode_ids(model, [p], params, [s], end=V - 1)[0] for p, s in zip(PROMPTS, [3, 1, 4, 1, 5], strict=True)]
    assert together == alone


def test_ending_a_sample_does_not_change_the_others():
    model, params = gpt(), SampleSection(max_new_tokens=30, temperature=1.0)
    undisturbed = decode_ids(model, PROMPTS, params)
    active, written = set(range(5)), [[] for _ in PROMPTS]
    rngs = [np.random.default_rng(i) for i in range(5)]
    for i, step in enumerate(decode(model, PROMPTS, params, rngs=rngs, suppressed=NONE_SUPPRESSED, active=active)):
        for sample, token in zip(step.samples, step.tokens, strict=True):
            written[sample].append(token)
        active -= {4: {0, 3}, 11: {2}}.get(i, set())
    assert [len(ids) for ids in written] == [5, 30, 12, 5, 30]
    assert all(ids == whole[: len(ids)] for ids, whole in zip(written, undisturbed, strict=True))


@pytest.mark.parametrize("penalty", [1.0, 8.0])
def test_greedy_decoding_takes_the_likeliest_with_a_penalty_for_the_whole_text_also_before_the_window(windows, penalty):
    model, prompt = gpt(block_size=6), [5, 5, 0]
    params = SampleSection(max_new_tokens=15, temperature=0.0, repetition_penalty=penalty)
    text = list(prompt)
    for window in windows(len(prompt), 14, 6):
        x = model(torch.tensor([[text[i] for i in window]]))[0, -1]
        seen = torch.tensor([token in text for token in range(V)])
        text.append(int(torch.where(seen, torch.where(x > 0, x / penalty, x * penalty), x).argmax()))
    assert decode_ids(model, [prompt], params) == [text[3:]]


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_samples_are_in_order_and_equal_those_decoded_alone_for_any_batch_size(rows, monkeypatch):
    monkeypatch.setattr("gptlite.inference.generate.rows_at_once", lambda cfg: rows)
    model, tokenizer = gpt(), CharTokenizer("abcdef")
    params = SampleSection(max_new_tokens=60, temperature=1.0, stop=["ab", "fa"])

    def texts(prompts, seeds):
        return ["".join(sample) for sample in samples_of(prompts, params, seeds, model=model)]

    together = texts(PROMPTS, range(5))
    assert together == [texts([p], [i])[0] for i, p in enumerate(PROMPTS)]
    free = [tokenizer.decode(ids) for ids in decode_ids(model, PROMPTS, params, end=tokenizer.eot_id)]
    assert together == [re.split("ab|fa", text)[0] for text in free]


def test_a_sample_has_the_reason_why_it_ended_and_the_tokens_of_its_text():
    def whole(seed, **values):
        return next(samples_of([[1]], SampleSection(max_new_tokens=200, temperature=1.0, **values), [seed])).whole()

    free = [whole(seed) for seed in range(20)]
    assert {sample.reason for sample in free} == {"end of text"}  # of seven ids one is the end
    tokenizer = CharTokenizer("abcdef")
    assert all(tokenizer.decode(sample.tokens) == sample.text for sample in free)
    seed, longest = max(enumerate(free), key=lambda found: len(found[1].tokens))
    assert len(longest.tokens) > 8
    token, character = longest.tokens[5], longest.text[5]
    at = longest.tokens.index(token)
    stopped = whole(seed, stop_tokens=[token])
    assert (stopped.reason, stopped.tokens) == ("stop token", longest.tokens[:at])
    cut = whole(seed, stop=[character])
    assert (cut.reason, cut.text, cut.tokens) == ("stop text", longest.text[:at], longest.tokens[: at + 1])
    # The text ends with a possible beginning of a longer stop text; only at the end is it known not to be one.
    both = [longest.text[2], longest.text[1:3] + "?"]
    late = next(samples_of([[1]], SampleSection(max_new_tokens=3, temperature=1.0, stop=both), [seed])).whole()
    assert (late.reason, late.text) == ("stop text", longest.text[: longest.text.index(longest.text[2])])
    short = next(samples_of([[1]], SampleSection(max_new_tokens=3, temperature=1.0), [seed])).whole()
    assert (short.reason, short.tokens) == ("length", longest.tokens[:3])


def test_log_probabilities_are_those_of_the_model_itself_with_any_filters():
    model = gpt(block_size=64)
    params = SampleSection(max_new_tokens=10, temperature=0.5, top_k=3, repetition_penalty=1.5)
    [sample] = samples_of([[1, 2]], params, [0], n_top_logprobs=3, model=model)
    tokens = sample.whole().tokens
    logprobs = torch.log_softmax(model(torch.tensor([[1, 2, *tokens]]))[0], dim=-1)
    expected = [float(logprobs[1 + i, token]) for i, token in enumerate(tokens)]
    assert sample.logprobs == pytest.approx(expected, abs=1e-6)
    assert [len(row) for row in Step([0], [1], np.zeros((1, 3), np.float32)).top_logprobs(5)] == [3]
    for i, top_logprobs in enumerate(sample.top_logprobs):
        values, ids = logprobs[1 + i].topk(3)
        assert [token for token, _ in top_logprobs] == ids.tolist()
        assert [logprob for _, logprob in top_logprobs] == pytest.approx(values.tolist(), abs=1e-6)


def test_the_first_sample_streams_while_the_others_are_decoded_with_it(monkeypatch):
    reads, read = [], DecodingBatch.read
    monkeypatch.setattr(DecodingBatch, "read", lambda self, tokens: reads.append(len(tokens)) or read(self, tokens))
    suppressed = np.array([False] * 6 + [True])
    samples = generate_batch(
        gpt(),
        [[1]] * 3,
        SampleSection(max_new_tokens=8),
        seeds=range(3),
        suppressed=suppressed,
        tokenizer=CharTokenizer("abcdef"),
    )
    counts = [[len(reads) for _ in pieces] for pieces in samples]
    assert counts == [list(range(8)), [7], [7]]
    assert reads == [3] * 7

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.schema import ModelSection
from gptlite.inference.generate import (
    Context,
    Decoding,
    choose,
    generate,
    keep_top_k,
    keep_top_p,
    never,
    sample_seed,
    stream_text,
)
from gptlite.model.gpt import GPT
from gptlite.tokenizers.bpe import train_bpe
from gptlite.tokenizers.char import CharTokenizer

V = 7
NONE_BARRED = torch.zeros(V, dtype=torch.bool)


def gpt(**values) -> GPT:
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 6, **values})
    model = GPT(cfg, V, rng=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(0.5 * torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(i)))
    return model


def windows(n: int, block_size: int) -> list[range]:
    """What the model sees after each of n tokens are read one by one: the rule, stated once more.

    A window grows to block_size; then it starts anew from its last half, the new token included.
    """
    seen, start = [], 0
    for end in range(1, n + 1):
        if end - start > block_size:
            start = end - block_size // 2
        seen.append(range(start, end))
    return seen


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "none"])
def test_cached_decoding_equals_reading_each_window_anew_past_the_context(position):
    model = gpt(position=position)
    tokens = np.random.default_rng(0).integers(0, V, 40).tolist()
    context = Context(model)
    for token, window in zip(tokens, windows(40, 6), strict=True):
        anew = model(torch.tensor([tokens[window.start : window.stop]]))[0, -1]
        torch.testing.assert_close(context.read([token]), anew, rtol=0, atol=1e-12)


def test_a_prompt_longer_than_the_context_is_seen_by_its_last_tokens():
    model = gpt()
    tokens = np.random.default_rng(0).integers(0, V, 20).tolist()
    torch.testing.assert_close(Context(model).read(tokens), Context(model).read(tokens[-6:]), rtol=0, atol=0)


def test_greedy_decoding_takes_the_likeliest_token_each_time():
    model = gpt()
    ids = list(generate(model, [1], Decoding(5, 0.0), rng=torch.Generator(), barred=NONE_BARRED, end=-1))
    expected = [1]
    for _ in range(5):
        expected.append(int(model(torch.tensor([expected]))[0, -1].argmax()))
    assert ids == expected[1:]


def test_draws_follow_the_softmax_of_the_tempered_logits():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -math.inf, 0.5, 0.5])
    rng = torch.Generator().manual_seed(0)
    n = 20_000
    counts = np.bincount([choose(logits, Decoding(temperature=0.7), rng) for _ in range(n)], minlength=V)
    weights = np.exp(logits.double().numpy() / 0.7)
    expected = n * weights / weights.sum()
    assert counts[4] == 0
    chi_square = (((counts - expected) ** 2)[expected > 0] / expected[expected > 0]).sum()
    assert chi_square < 20.5  # 5 degrees of freedom: one in a thousand


rows = st.lists(st.floats(-30, 30, width=32) | st.just(-math.inf), min_size=1, max_size=12).filter(
    lambda row: max(row) > -math.inf
)


@given(rows, st.integers(1, 15))
def test_top_k_keeps_the_k_largest_and_of_equals_the_lower_ids(row, k):
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    expected = [x if i in order else -math.inf for i, x in enumerate(row)]
    assert keep_top_k(torch.tensor(row), k).tolist() == expected


@given(rows, st.floats(0.01, 1.0))
def test_top_p_keeps_the_shortest_likeliest_list_that_reaches_p(row, p):
    kept = keep_top_p(torch.tensor(row, dtype=torch.float64), p)
    weights = np.exp(np.array(row) - max(row))
    probabilities = weights / weights.sum()
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    inside = [i for i in order if kept[i] > -math.inf]
    assert inside == order[: len(inside)]
    assert len(inside) >= 1
    total = sum(probabilities[i] for i in inside)
    assert total >= p - 1e-9 or all(probabilities[i] == 0 for i in order[len(inside) :])
    assert sum(probabilities[i] for i in inside[:-1]) < p + 1e-9


def test_barred_ids_are_never_drawn():
    model = gpt()
    barred = torch.tensor([i % 2 == 0 for i in range(V)])
    ids = list(generate(model, [1], Decoding(200, 5.0), rng=torch.Generator(), barred=barred, end=-1))
    assert len(ids) == 200
    assert all(i % 2 == 1 for i in ids)


def test_generation_ends_before_end_of_text():
    model = gpt()
    ids = list(generate(model, [1], Decoding(500, 3.0), rng=torch.Generator(), barred=NONE_BARRED, end=V - 1))
    assert len(ids) < 500
    assert V - 1 not in ids


def test_ids_that_no_text_produces_are_barred_and_end_of_text_only_where_texts_end():
    tokenizer = CharTokenizer("ab")
    assert never(tokenizer, ends=True).tolist() == [False, False, False]
    assert never(tokenizer, ends=False).tolist() == [False, False, True]


BPE = train_bpe(["naïve café 日本語 text, naïve café"], 280)


@given(st.lists(st.integers(0, BPE.vocab_size - 1), max_size=40))
def test_streamed_text_equals_the_decoded_whole_and_never_shows_half_a_character(ids):
    pieces = list(stream_text(iter(ids), BPE))
    assert "".join(pieces) == BPE.decode(ids)
    assert all(pieces)


@given(st.text(alphabet="abé日", max_size=30), st.lists(st.text(alphabet="abé日", min_size=1, max_size=4), max_size=3))
def test_a_stop_text_cuts_where_it_first_appears_however_the_text_is_cut_into_tokens(text, stop):
    ids = BPE.encode(text).tolist()
    first = min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))
    assert "".join(stream_text(iter(ids), BPE, stop)) == text[:first]


def test_samples_of_one_seed_have_generators_of_their_own():
    assert len({sample_seed(seed, i) for seed in range(20) for i in range(20)}) == 400
    assert all(0 <= sample_seed(seed, 0) < 2**63 for seed in range(100))

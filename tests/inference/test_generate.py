from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptlite.config.schema import ModelSection
from gptlite.inference.engine import Contexts
from gptlite.inference.generate import (
    Decoding,
    TextStream,
    choose,
    decode,
    keep_top_k,
    keep_top_p,
    never,
    sample_seed,
    write,
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


def write_ids(model: GPT, prompts, how: Decoding, seeds=None, barred=NONE_BARRED, end=-1) -> list[list[int]]:
    """All that `decode` gives to each prompt."""
    rngs = [torch.Generator().manual_seed(seed) for seed in seeds or range(len(prompts))]
    written = [[] for _ in prompts]
    for step in decode(model, prompts, how, rngs=rngs, barred=barred, end=end, ended=set()):
        for sample, token in step.items():
            written[sample].append(token)
    return written


def test_greedy_decoding_takes_the_likeliest_token_each_time():
    model = gpt()
    [ids] = write_ids(model, [[1]], Decoding(5, 0.0))
    expected = [1]
    for _ in range(5):
        expected.append(int(model(torch.tensor([expected]))[0, -1].argmax()))
    assert ids == expected[1:]


def test_draws_follow_the_softmax_of_the_tempered_logits():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -math.inf, 0.5, 0.5])
    n = 20_000
    rngs = [torch.Generator().manual_seed(0)] * n
    counts = np.bincount(choose(logits.expand(n, V), Decoding(temperature=0.7), rngs), minlength=V)
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
    assert keep_top_k(torch.tensor([row]), k).tolist() == [expected]


@given(rows, st.floats(0.01, 1.0))
def test_top_p_keeps_the_shortest_likeliest_list_that_reaches_p(row, p):
    kept = keep_top_p(torch.tensor([row], dtype=torch.float64), p)[0]
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
    [ids] = write_ids(model, [[1]], Decoding(200, 5.0), barred=barred)
    assert len(ids) == 200
    assert all(i % 2 == 1 for i in ids)


def test_generation_ends_before_end_of_text():
    model = gpt()
    [ids] = write_ids(model, [[1]], Decoding(500, 3.0), end=V - 1)
    assert len(ids) < 500
    assert V - 1 not in ids


PROMPTS = [[1], [2, 3, 4], [5] * 9, [1], [0, 6]]


@pytest.mark.parametrize("block_size", [1, 2, 6, 64])
@pytest.mark.parametrize(
    "how", [Decoding(40, 1.0), Decoding(40, 0.0), Decoding(40, 1.5, top_k=3, top_p=0.9), Decoding(1)], ids=str
)
def test_each_of_several_samples_draws_what_it_would_draw_alone_and_ends_where_it_would(block_size, how):
    model = gpt(block_size=block_size)
    together = write_ids(model, PROMPTS, how, seeds=[3, 1, 4, 1, 5], end=V - 1)
    alone = [write_ids(model, [p], how, [s], end=V - 1)[0] for p, s in zip(PROMPTS, [3, 1, 4, 1, 5], strict=True)]
    assert together == alone


def test_samples_that_the_caller_ends_leave_and_the_others_go_on_as_before():
    model, how = gpt(), Decoding(30, 1.0)
    undisturbed = write_ids(model, PROMPTS, how)
    ended, written = set(), [[] for _ in PROMPTS]
    rngs = [torch.Generator().manual_seed(i) for i in range(5)]
    for i, step in enumerate(decode(model, PROMPTS, how, rngs=rngs, barred=NONE_BARRED, end=-1, ended=ended)):
        for sample, token in step.items():
            written[sample].append(token)
        ended |= {4: {0, 3}, 11: {2}}.get(i, set())
    assert [len(ids) for ids in written] == [5, 30, 12, 5, 30]
    assert all(ids == whole[: len(ids)] for ids, whole in zip(written, undisturbed, strict=True))


def test_a_row_of_many_is_filtered_and_drawn_as_it_would_be_alone():
    logits = torch.randn(9, 600, generator=torch.Generator().manual_seed(0)).mul(3).round()  # with ties
    for how in (Decoding(), Decoding(top_k=40), Decoding(top_p=0.95), Decoding(temperature=0.0)):
        seeded = [torch.Generator().manual_seed(i) for i in range(9)]
        alone = [choose(row[None], how, [torch.Generator().manual_seed(i)])[0] for i, row in enumerate(logits)]
        assert choose(logits, how, seeded) == alone


def test_a_nucleus_of_more_than_the_first_hundreds_is_found_whole():
    logits = torch.arange(5000, dtype=torch.float64)[None] / -5000  # nearly flat: p needs about p x 5,000 ids
    weights = np.exp(logits[0].numpy())
    reached = np.cumsum(weights) / weights.sum()
    for p in (0.01, 0.3, 0.9, 1.0):
        assert int((keep_top_p(logits, p) > -math.inf).sum()) == min(int((reached < p).sum()) + 1, 5000)


def test_ids_that_no_text_produces_are_barred_and_end_of_text_only_where_texts_end():
    tokenizer = CharTokenizer("ab")
    assert never(tokenizer, ends=True).tolist() == [False, False, False]
    assert never(tokenizer, ends=False).tolist() == [False, False, True]


def streamed(ids, tokenizer, stop=()) -> list[str]:
    """The pieces of a text stream that are not empty."""
    stream = TextStream(tokenizer, stop)
    return [piece for piece in [*map(stream.feed, ids), stream.finish()] if piece]


def test_a_text_has_ended_with_its_stop_text_and_takes_no_more():
    stream = TextStream(CharTokenizer("ab"), ["b"])
    assert (stream.feed(0), stream.ended) == ("a", False)
    assert (stream.feed(1), stream.ended) == ("", True)
    assert (stream.feed(0), stream.finish()) == ("", "")


def test_of_two_stop_texts_the_one_that_begins_first_cuts_though_the_other_is_whole_before_it():
    tokenizer = CharTokenizer("abc")
    assert "".join(streamed(tokenizer.encode("cbaa"), tokenizer, ["a", "baa"])) == "c"
    assert "".join(streamed(tokenizer.encode("cbab"), tokenizer, ["a", "baa"])) == "cb"


@pytest.mark.parametrize("rows", [1, 2, 64])
def test_samples_come_in_order_and_each_as_it_would_alone_however_many_are_decoded_together(rows, monkeypatch):
    monkeypatch.setattr("gptlite.inference.generate.rows_at_once", lambda cfg: rows)
    model, tokenizer = gpt(), CharTokenizer("abcdef")
    how = Decoding(60, 1.0, stop=("ab", "fa"))

    def texts(prompts, seeds):
        rngs = [torch.Generator().manual_seed(seed) for seed in seeds]
        samples = write(model, prompts, how, rngs=rngs, barred=NONE_BARRED, tokenizer=tokenizer)
        return ["".join(pieces) for pieces in samples]

    together = texts(PROMPTS, range(5))
    assert together == [texts([p], [i])[0] for i, p in enumerate(PROMPTS)]
    free = ["".join(streamed(ids, tokenizer)) for ids in write_ids(model, PROMPTS, how, end=tokenizer.eot_id)]
    assert together == [re.split("ab|fa", text)[0] for text in free]


def test_the_first_of_several_samples_streams_while_the_others_are_decoded_with_it(monkeypatch):
    reads, read = [], Contexts.read
    monkeypatch.setattr(Contexts, "read", lambda self, tokens: reads.append(len(tokens)) or read(self, tokens))
    barred = torch.tensor([False] * 6 + [True])
    rngs = [torch.Generator().manual_seed(i) for i in range(3)]
    samples = write(gpt(), [[1]] * 3, Decoding(8), rngs=rngs, barred=barred, tokenizer=CharTokenizer("abcdef"))
    counts = [[len(reads) for _ in pieces] for pieces in samples]
    assert counts == [list(range(8)), [7] * 8, [7] * 8]
    assert reads == [3] * 7


BPE = train_bpe(["naïve café 日本語 text, naïve café"], 280)


@given(st.lists(st.integers(0, BPE.vocab_size - 1), max_size=40))
def test_streamed_text_equals_the_decoded_whole_and_never_shows_half_a_character(ids):
    pieces = streamed(ids, BPE)
    assert "".join(pieces) == BPE.decode(ids)
    assert all(pieces)


@given(st.text(alphabet="abé日", max_size=30), st.lists(st.text(alphabet="abé日", min_size=1, max_size=4), max_size=3))
def test_a_stop_text_cuts_where_it_first_appears_however_the_text_is_cut_into_tokens(text, stop):
    ids = BPE.encode(text).tolist()
    first = min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))
    assert "".join(streamed(ids, BPE, stop)) == text[:first]


def test_samples_of_one_seed_have_generators_of_their_own():
    assert len({sample_seed(seed, i) for seed in range(20) for i in range(20)}) == 400
    assert all(0 <= sample_seed(seed, 0) < 2**63 for seed in range(100))

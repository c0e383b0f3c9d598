from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlite.compute.device import Compute
from gptlite.config.schema import ModelSection
from gptlite.data.batches import eval_batches
from gptlite.data.tokens import TokenArray
from gptlite.data.windows import EvalWindows
from gptlite.inference.score import Score, bytes_per_token, score
from gptlite.model.gpt import GPT
from gptlite.tokenizers.char import CharTokenizer

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
TOKENIZER = CharTokenizer("aé日")
END = TOKENIZER.eot_id


def test_the_figures_are_those_of_a_hand_calculation():
    # Two tokens, one with probability 1/2 and one with 1/8: 1 + 3 bits, over 3 bytes.
    result = Score(nats=math.log(2) + math.log(8), tokens=2, bytes=3)
    assert result.bits_per_byte == pytest.approx(4 / 3)
    assert result.loss == pytest.approx(2 * math.log(2))
    assert result.perplexity == pytest.approx(4)


def test_a_token_stands_for_its_utf8_bytes_and_end_of_text_for_none():
    assert bytes_per_token(TOKENIZER).tolist() == [1, 2, 3, 0]


@pytest.fixture(scope="module")
def model() -> GPT:
    """Ids a, é, 日 and end-of-text; in double precision, and far from knowing nothing."""
    cfg = ModelSection(n_layer=1, n_head=1, n_embd=8, block_size=5)
    model = GPT(cfg, 4, rng=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(0.5 * torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(i)))
    return model


def token_by_token(model: GPT, ids: Sequence[int], stride: int = 5) -> float:
    """Nats of every id but the first, each from a forward pass of its own over what its window holds before it."""
    total = 0.0
    for i in range(1, len(ids)):
        start = next(s for s in range(0, i, stride) if s + 5 >= i)
        probabilities = torch.softmax(model(torch.tensor([list(ids[start:i])]))[0, -1], dim=-1)
        total -= math.log(probabilities[ids[i]].item())
    return total


def judged(model: GPT, ids: Sequence[int], batch_size: int, **how: int) -> Score:
    windows = EvalWindows(TokenArray(np.array(ids, np.uint16), "ids"), 5, **how)
    return score(model, eval_batches(windows, batch_size), bytes_per_token(TOKENIZER), CPU)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize(("n", "stride"), [(2, 5), (6, 5), (7, 5), (33, 5), (33, 2), (12, 1)])
def test_scores_of_a_text_equal_a_loop_over_single_tokens(model, n, stride, batch_size):
    ids = np.random.default_rng(n).integers(0, 4, n).tolist()
    got = judged(model, ids, batch_size, stride=stride)
    assert got.nats == pytest.approx(token_by_token(model, ids, stride), rel=1e-9)
    assert (got.tokens, got.bytes) == (n - 1, sum([1, 2, 3, 0][i] for i in ids[1:]))


documents_of = st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=5)


@settings(max_examples=20)
@given(documents_of, st.integers(1, 5), st.integers(1, 4), st.randoms(use_true_random=False))
def test_documents_are_scored_alone_with_their_ends_in_any_order_and_any_batches(
    model, documents, stride, batch_size, rng
):
    documents = [*documents, [0]]
    total = sum(token_by_token(model, [END, *document, END], stride) for document in documents)
    rng.shuffle(documents)
    got = judged(model, [i for d in documents for i in (END, *d)], batch_size, stride=stride, end=END)
    assert got.nats == pytest.approx(total, rel=1e-9)
    text = [i for document in documents for i in document]
    assert (got.tokens, got.bytes) == (len(text) + len(documents), sum(i + 1 for i in text))


def test_a_text_of_end_of_text_tokens_alone_has_no_bytes_to_share_its_bits():
    assert Score(1.0, 1, 0).bits_per_byte == math.inf

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_gpt import random_gpt

from gptlite.compute.device import Compute
from gptlite.data.dataset.batches import EvalWindows, eval_batches
from gptlite.data.dataset.tokens import TokenArray
from gptlite.inference.score import Score, bytes_and_chars_per_token, loss_by_position, score_windows, token_nats
from gptlite.model.gpt import GPT
from gptlite.tokenizers.bpe import train_bpe
from gptlite.tokenizers.char import CharTokenizer

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
TOKENIZER = CharTokenizer("aé日")
END = TOKENIZER.eot_id
BYTES = train_bpe(["é日本語 日本"] * 3, 262)  # a few merges, one of them of half a character


def test_loss_perplexity_and_bits_are_those_of_a_hand_calculation():
    # Two tokens, one with probability 1/2 and one with 1/8: 1 + 3 bits, over 3 bytes that are 2 characters.
    result = Score(nats=math.log(2) + math.log(8), tokens=2, bytes=3, characters=2)
    assert result.bits_per_byte == pytest.approx(4 / 3)
    assert result.bits_per_character == pytest.approx(2)
    assert result.loss == pytest.approx(2 * math.log(2))
    assert result.perplexity == pytest.approx(4)


def test_a_token_counts_its_utf8_bytes_and_characters_and_end_of_text_none():
    assert bytes_and_chars_per_token(TOKENIZER).tolist() == [[1, 1], [2, 1], [3, 1], [0, 0]]


@given(st.text("aé日本語😀 "))
def test_the_characters_and_bytes_of_tokens_that_split_characters_add_up_to_the_text(text):
    ids = BYTES.encode(text)
    assert bytes_and_chars_per_token(BYTES)[ids.astype(np.int64)].sum(0).tolist() == [len(text.encode()), len(text)]


@pytest.fixture(scope="module")
def model() -> GPT:
    """Ids a, é, 日 and end-of-text."""
    return random_gpt(4, n_layer=1, n_head=1, block_size=5)


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
    counts = bytes_and_chars_per_token(TOKENIZER)
    scores = [score_windows(model, batch, counts, CPU) for _, batch in eval_batches(windows, batch_size)]
    return Score.of(np.concatenate(scores).sum(0))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize(("n", "stride"), [(2, 5), (6, 5), (7, 5), (33, 5), (33, 2), (12, 1)])
def test_scores_of_a_text_equal_a_loop_over_single_tokens(model, n, stride, batch_size):
    ids = np.random.default_rng(n).integers(0, 4, n).tolist()
    got = judged(model, ids, batch_size, stride=stride)
    assert got.nats == pytest.approx(token_by_token(model, ids, stride), rel=1e-9)
    assert (got.tokens, got.bytes) == (n - 1, sum([1, 2, 3, 0][i] for i in ids[1:]))
    assert got.characters == sum(i != END for i in ids[1:])


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
    assert got.characters == len(text)


@pytest.mark.parametrize(
    ("ids", "end"), [([0, 1, 2, 1, 0, 0, 2, 1, 1, 2, 0, 1, 2], None), ([END, 0, END, 1, 2, 2], END)]
)
def test_the_loss_at_a_position_is_that_of_the_tokens_with_so_much_context(model, ids, end):
    windows = EvalWindows(TokenArray(np.array(ids, np.uint16), "ids"), 5, end=end)
    chains = [ids] if end is None else [[END, 0, END], [END, 1, 2, 2, END]]
    expected, tokens = np.zeros(5), [0] * 5
    for chain in chains:
        for i in range(1, len(chain)):
            expected[(i - 1) % 5] += token_by_token(model, chain[: i + 1]) - token_by_token(model, chain[:i])
            tokens[(i - 1) % 5] += 1
    found = loss_by_position(model, [batch for _, batch in eval_batches(windows, 2)], CPU)
    assert [(each.first, each.last) for each in found] == [(i, i) for i, t in enumerate(tokens, 1) if t]
    assert [each.mean for each in found] == pytest.approx([n / t for n, t in zip(expected, tokens, strict=True) if t])


def test_positions_are_in_bins_whose_noise_is_that_of_their_tokens(monkeypatch):
    model, rng = random_gpt(vocab_size=4, block_size=40), np.random.default_rng(0)
    batches = [(torch.zeros(3, 40, dtype=torch.int64), torch.zeros(3, 40, dtype=torch.int64)) for _ in range(2)]
    nats = [torch.from_numpy(rng.exponential(size=(3, 40))) for _ in batches]
    left = iter(nats)
    monkeypatch.setattr("gptlite.inference.score.token_nats", lambda *_: next(left))
    found = loss_by_position(model, batches, CPU)
    bins = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 12), (13, 16), (17, 24), (25, 32), (33, 40)]
    assert [(each.first, each.last) for each in found] == bins
    for each in found:
        values = torch.cat(nats)[:, each.first - 1 : each.last].numpy()
        assert each.mean == pytest.approx(values.mean())
        assert each.error == pytest.approx(values.std() / math.sqrt(values.size))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_token_nats_of_half_precision_logits_are_computed_in_fp32(dtype):
    rng = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(2, 40, 100, generator=rng)).to(dtype)
    targets = torch.randint(100, (2, 40), generator=rng)
    exact = -torch.log_softmax(logits.double(), dim=-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(token_nats(logits, targets), exact.float(), rtol=1e-5, atol=1e-6)


def test_figures_without_bound_are_infinite():
    assert [Score(loss, 1, 1, 1).perplexity for loss in (709.9, 1e6)] == [math.inf] * 2  # e ** 709.78 is the limit
    assert Score(1.0, 1, 0, 0).bits_per_byte == Score(1.0, 1, 0, 0).bits_per_character == math.inf

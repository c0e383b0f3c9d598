from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gptlite.compute.device import Compute
from gptlite.config.schema import ModelSection
from gptlite.data.batches import eval_windows
from gptlite.data.tokens import TokenArray
from gptlite.inference.score import Score, bytes_per_token, score
from gptlite.model.gpt import GPT
from gptlite.tokenizers.char import CharTokenizer

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
TOKENIZER = CharTokenizer("aé日")


def test_the_figures_are_those_of_a_hand_calculation():
    # Two tokens, one with probability 1/2 and one with 1/8: 1 + 3 bits, over 3 bytes.
    result = Score(nats=math.log(2) + math.log(8), tokens=2, bytes=3)
    assert result.bits_per_byte == pytest.approx(4 / 3)
    assert result.loss == pytest.approx(2 * math.log(2))
    assert result.perplexity == pytest.approx(4)


def test_a_token_stands_for_its_utf8_bytes_and_end_of_text_for_none():
    assert bytes_per_token(TOKENIZER).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("n", [2, 6, 7, 33])
def test_scores_equal_a_loop_over_single_tokens(n, batch_size):
    model = GPT(ModelSection(n_layer=1, n_head=1, n_embd=8, block_size=5), 4, rng=torch.Generator().manual_seed(0))
    model.double()
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(0.5 * torch.randn(p.shape, dtype=p.dtype, generator=torch.Generator().manual_seed(i)))
    ids = np.random.default_rng(n).integers(0, 4, n).astype(np.uint16)
    total, text_bytes = 0.0, 0
    for i in range(1, n):
        start = (i - 1) // 5 * 5  # windows of 5 follow one another; each sees only itself
        probabilities = torch.softmax(model(torch.tensor([ids[start:i].tolist()]))[0, -1], dim=-1)
        total -= math.log(probabilities[int(ids[i])].item())
        text_bytes += [1, 2, 3, 0][ids[i]]
    got = score(model, eval_windows(TokenArray(ids, "ids"), 5, batch_size), bytes_per_token(TOKENIZER), CPU)
    assert got.nats == pytest.approx(total, rel=1e-9)
    assert (got.tokens, got.bytes) == (n - 1, text_bytes)


def test_a_text_of_end_of_text_tokens_alone_has_no_bytes_to_share_its_bits():
    assert Score(1.0, 1, 0).bits_per_byte == math.inf

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gptlite.model.gpt import GPT


@pytest.fixture
def windows() -> Callable[[int, int, int], list[range]]:
    """The window after the prompt and after each new token: (n_prompt, n_new, block_size) -> ranges of tokens.

    A second implementation of the rule: a window grows to block_size; then it restarts from its last half, which
    includes the new token.
    """

    def ranges(n_prompt: int, n_new: int, block_size: int) -> list[range]:
        start = max(0, n_prompt - block_size)
        seen = [range(start, n_prompt)]
        for end in range(n_prompt + 1, n_prompt + n_new + 1):
            if end - start > block_size:
                start = end - max(1, block_size // 2)
            seen.append(range(start, end))
        return seen

    return ranges


@pytest.fixture
def uncached(windows: Callable[[int, int, int], list[range]]) -> Callable[[GPT, list[int], int], Tensor]:
    """Logits after the prompt and each later token, without a cache: (model, tokens, n_prompt) -> (1 + n_new, V)."""

    def logits(model: GPT, tokens: list[int], n_prompt: int) -> Tensor:
        seen = windows(n_prompt, len(tokens) - n_prompt, model.cfg.block_size)
        return torch.stack([model(torch.tensor([[tokens[i] for i in window]]))[0, -1] for window in seen])

    return logits

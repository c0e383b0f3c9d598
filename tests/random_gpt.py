"""Small models away from their initial values, where all tokens are about as likely."""

from __future__ import annotations

import torch

from gptlite.compute.device import Compute
from gptlite.config.schema import ModelSection
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.tokenizers.base import Tokenizer

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)


def random_gpt(
    vocab_size: int, seed: int = 0, *, spread: float = 0.5, dtype: torch.dtype = torch.float64, **values
) -> GPT:
    """A model with noise of this spread on its initial weights. values: of section model."""
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 6, **values})
    model = GPT(cfg, vocab_size, rng=torch.Generator().manual_seed(seed)).to(dtype)
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            rng = torch.Generator().manual_seed(1000 * seed + i)
            p.add_(spread * torch.randn(p.shape, dtype=dtype, generator=rng))
    return model.requires_grad_(False)


def language_model(gpt: GPT, tokenizer: Tokenizer, start_id: int = 0) -> LanguageModel:
    """The model with its tokenizer, on the CPU."""
    return LanguageModel(gpt.requires_grad_(False), tokenizer, start_id, "none", CPU)

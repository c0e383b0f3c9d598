"""What every export shares: what GPT-2's architecture lacks, and how far a model that was read back differs."""

from __future__ import annotations

import torch
from torch import Tensor

from gptlite.config.schema import ModelSection
from gptlite.config.training import SampleSection
from gptlite.errors import ConfigError
from gptlite.formatting import counted
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import missing_in_gpt2


def check_is_gpt2(cfg: ModelSection) -> None:
    """ConfigError, which names the keys, for a model that GPT-2's architecture cannot express."""
    if missing := missing_in_gpt2(cfg):
        raise ConfigError(
            "this model does not fit GPT-2's architecture, which other programs expect. Train one with "
            f"{' and '.join(missing)}."
        )


def compare(model: LanguageModel, read_back: GPT) -> str:
    """Return a line that says how far a model that was read back differs, on a text that the model itself writes."""
    n = model.gpt.cfg.block_size
    sample = next(model.samples("", SampleSection(max_new_tokens=n, temperature=1.0))).whole()
    text = torch.tensor([[model.start_id, *sample.tokens][:n]])
    difference = largest_difference(model.gpt, read_back, text)
    return f"read back: log-probabilities of {counted(text.numel(), 'token')} differ by at most {difference:.1e} nats"


@torch.inference_mode()
def largest_difference(first: GPT, second: GPT, idx: Tensor) -> float:
    """Return the largest difference between two models' log-probabilities of any next token of idx (B, T), in nats."""
    one, other = (torch.log_softmax(model(idx).double(), dim=-1) for model in (first, second))
    return float((one - other).abs().max())

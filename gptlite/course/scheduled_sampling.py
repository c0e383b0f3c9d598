"""Scheduled sampling: training on inputs some of which are the model's own predictions, as in generation.

Under teacher forcing, the default, every input is the text's own token, and nothing teaches the model how to continue
after a wrong choice of its own (Bengio et al. 2015, arXiv 1506.03099). Two passes suffice (Mihaylova and Martins 2019,
arXiv 1906.07651):

1. The model reads the text, without gradient or dropout: after x[0] .. x[t - 1] it has a distribution for x[t].
2. Each input except the first of its window is replaced, with a probability that rises during training, by an id drawn
   from its distribution. The update is made on these inputs; the targets stay the text's own.

The paper feeds the most likely token or averages of embeddings; an id drawn from the softmax is what sampling feeds.
Ids that no text produces are not excluded: they are never a target, so their probability soon vanishes.

When targets no longer follow from the inputs, the best answer is to trust the inputs less (Huszár 2015, arXiv
1511.05101), and it was no improvement where it was measured (docs/decisions.md). The logged training loss is that of
the mixed inputs, and higher.
"""

from __future__ import annotations

import math
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.config.training import TrainSection
from gptlite.model.gpt import GPT
from gptlite.seeds import U64, mix_arrays

STREAM = 5  # of the seed; dropout has another
DRAW_CHUNK = 4096  # inputs; each takes about 26 bytes per id of the vocabulary
ONE = 1 << 30  # a probability of 1, in the units of `draw`


def replaced_fraction_at(step: int, cfg: TrainSection, elapsed_fraction: float | None = None) -> float:
    """Probability that an input of update `step` (the first is 0) is replaced. It rises from scheduled_sampling_start
    and would reach cfg.scheduled_sampling one update after the last, or earlier by scheduled_sampling_until.

    1 minus this is the probability of the text's own token after i updates. Linear in i is, as in the paper's curves,

    linear            the probability     max(floor, k - c i)
    exponential       its logarithm       k^i
    inverse_sigmoid   its logit           k / (k + exp(i / k))

    Start and end are keys here; in the paper's last two curves k decides both.

    elapsed_fraction: under max_minutes, how much of the time has passed; the probability follows it instead.
    """
    progress = step / (cfg.updates or 1) if elapsed_fraction is None else elapsed_fraction
    progress = min(1.0, progress / cfg.scheduled_sampling_until)
    first, last = cfg.scheduled_sampling_start, cfg.scheduled_sampling
    if cfg.scheduled_sampling_decay == "linear":
        return first + (last - first) * progress
    if cfg.scheduled_sampling_decay == "exponential":
        return 1.0 - math.pow(1.0 - first, 1.0 - progress) * math.pow(1.0 - last, progress)
    if cfg.scheduled_sampling_decay == "inverse_sigmoid":
        odds = math.pow(1.0 / first - 1.0, 1.0 - progress) * math.pow(1.0 / last - 1.0, progress)
        return 1.0 / (1.0 + odds)
    assert_never(cfg.scheduled_sampling_decay)


def random_bits(seed: int, step: int, first_row: int, n_rows: int, length: int) -> U64:
    """Return 64 random bits for every input of these rows of batch `step`, the same on any process: (n_rows, length).

    The upper half decides whether the input is replaced, the lower half by what.
    """
    inputs = np.arange(first_row * length, (first_row + n_rows) * length, dtype=np.uint64)
    return mix_arrays(seed, STREAM, step, inputs).reshape(n_rows, length)


def draw(logits: Tensor, numbers: Tensor) -> Tensor:
    """Draw an id for each row from its softmax by a number in 0 .. 2**32 - 1: (N, V), (N,) int64 -> (N,).

    Probabilities are counted in units of 2**-30: sums of integers are the same on every device, in any order.
    """
    weights = (torch.softmax(logits, dim=-1, dtype=torch.float32) * ONE).long()
    sums = weights.cumsum(-1)
    wanted = (numbers * sums[:, -1]) >> 32  # 0 .. the last sum - 1
    ids = torch.searchsorted(sums, wanted[:, None], right=True)[:, 0]
    return ids.clamp(max=logits.size(-1) - 1)  # nan logits may point beyond; the loss reports them


def mixed_inputs(model: GPT, x: Tensor, fraction: float, bits: U64, compute: Compute) -> Tensor:
    """Replace about this fraction of the inputs `x` by draws from the model: (B, T), bits (B, T) -> (B, T)."""
    chosen = (bits >> np.uint64(32)) < fraction * 2**32
    chosen[:, 0] = False  # the model predicts nothing before it has read a token
    numbers = torch.from_numpy((bits[chosen] & np.uint64(2**32 - 1)).astype(np.int64)).to(x.device)
    rows, places = (torch.from_numpy(indices).to(x.device) for indices in np.nonzero(chosen))
    # Also where nothing is replaced: processes among which blocks are divided compute them together.
    with torch.no_grad(), compute.autocast():
        hidden = model.hidden(x)[rows, places - 1]  # (N, C)
        parts = zip(torch.split(hidden, DRAW_CHUNK), torch.split(numbers, DRAW_CHUNK), strict=True)
        drawn = torch.cat([draw(model.head(part), of_part) for part, of_part in parts])
    mixed = x.clone()
    mixed[rows, places] = drawn
    return mixed

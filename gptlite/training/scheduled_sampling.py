"""Scheduled sampling: training on inputs of which some are the model's own, as all of them are when it decodes.

Under teacher forcing, the default, every input is the text's own token. When the model writes, it reads what it has
chosen, and nothing has shown it how to go on from a wrong choice (Bengio et al. 2015, arXiv 1506.03099). To let it
choose token by token while it trains would take a pass per token; two do (Mihaylova and Martins 2019, arXiv
1906.07651):

1. The model reads the text, without gradient or dropout: after x[0] .. x[t - 1] it has a distribution for x[t].
2. Each input but the first of its window is replaced, with a probability that rises as training goes on, by an id
   drawn from its distribution. The update is made on these inputs; the targets stay the text's own.

The paper feeds the likeliest token or averages of embeddings; an id drawn from the softmax is what the decoder reads.
Ids that no text produces are not left out: they are never a target, so that their probability is soon next to none.

It is no improvement in principle: with targets that no longer follow from the inputs, the best answer is to trust the
inputs less, not the text's own distribution (Huszár 2015, arXiv 1511.05101). Nor was it one where it was measured
(configs/README.md). The training loss that is logged is that of the mixed inputs, and higher.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.config.training import TrainSection
from gptlite.model.gpt import GPT
from gptlite.seeds import U64, mix_arrays

STREAM = 5  # of the seed, beside that of dropout
DRAWN_AT_ONCE = 4096  # inputs; each takes about 26 bytes for every id of the vocabulary
WHOLE = 1 << 30  # a probability of 1, in the units of `draw`


def replaced_fraction_at(step: int, cfg: TrainSection, elapsed_fraction: float | None = None) -> float:
    """Probability with which an input of update `step` (the first is 0) is replaced: it rises linearly from 0, to
    cfg.scheduled_sampling where one more update would follow the last.

    time_gone: under max_minutes, the share of the time that is gone, which it follows instead.
    """
    gone = step / (cfg.updates or 1) if elapsed_fraction is None else elapsed_fraction
    return cfg.scheduled_sampling * gone


def random_bits(seed: int, step: int, first_row: int, n_rows: int, length: int) -> U64:
    """64 random bits for every input of these rows of the batch of `step`, whoever computes them: (n_rows, length).

    The upper half decides whether the input is replaced, the lower half by what.
    """
    inputs = np.arange(first_row * length, (first_row + n_rows) * length, dtype=np.uint64)
    return mix_arrays(seed, STREAM, step, inputs).reshape(n_rows, length)


def draw(logits: Tensor, numbers: Tensor) -> Tensor:
    """An id of each row, drawn from its softmax by a number in 0 .. 2**32 - 1: (N, V), (N,) int64 -> (N,).

    Probabilities are counted in units of 2**-30: whole numbers have the same sums on every device, in any order.
    """
    weights = (torch.softmax(logits, dim=-1, dtype=torch.float32) * WHOLE).long()
    sums = weights.cumsum(-1)
    wanted = (numbers * sums[:, -1]) >> 32  # 0 .. the last sum - 1
    ids = torch.searchsorted(sums, wanted[:, None], right=True)[:, 0]
    return ids.clamp(max=logits.size(-1) - 1)  # logits that are not numbers may point beyond; the loss will tell


def mixed_inputs(model: GPT, x: Tensor, share: float, words: U64, compute: Compute) -> Tensor:
    """`x` with about this share of its inputs replaced by what the model proposes: (B, T), (B, T) words -> (B, T)."""
    chosen = (words >> np.uint64(32)) < share * 2**32
    chosen[:, 0] = False  # the model proposes nothing before it has read something
    if not chosen.any():
        return x
    numbers = torch.from_numpy((words[chosen] & np.uint64(2**32 - 1)).astype(np.int64)).to(x.device)
    rows, places = (torch.from_numpy(indices).to(x.device) for indices in np.nonzero(chosen))
    with torch.no_grad(), compute.autocast():
        hidden = model.hidden(x)[rows, places - 1]  # (N, C)
        parts = zip(torch.split(hidden, DRAWN_AT_ONCE), torch.split(numbers, DRAWN_AT_ONCE), strict=True)
        drawn = torch.cat([draw(model.head(part), of_part) for part, of_part in parts])
    mixed = x.clone()
    mixed[rows, places] = drawn
    return mixed

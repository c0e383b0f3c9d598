"""Reading for decoding: several texts at once through one cache, past the context length if need be."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gptlite.config.schema import ModelSection
from gptlite.model.cache import KVCache
from gptlite.model.gpt import GPT

MAX_ROWS = 64
MAX_CACHE_BYTES = 2**30


def rows_at_once(cfg: ModelSection) -> int:
    """How many texts are decoded together: 64, fewer where their fp32 caches would pass 1 GiB, at least one."""
    row_bytes = 4 * 2 * cfg.n_layer * cfg.block_size * cfg.n_embd
    return max(1, min(MAX_ROWS, MAX_CACHE_BYTES // row_bytes))


class DecodingBatch:
    """What the model has read of several texts, one a row; each row as if it were alone.

    The model has block_size positions: when a row's window is full, it is read anew from its last half, and goes
    on from there. Of a text longer than the window, the last block_size tokens are read.
    """

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]], n_new: int) -> None:
        """texts: one token or more each. n_new: how many more tokens of each will be read at most."""
        self.model, self.block_size = model, model.cfg.block_size
        self.windows = [list(ids[-self.block_size :]) for ids in texts]
        distinct = list(dict.fromkeys(map(tuple, self.windows)))  # what several rows begin with is read once
        rows = [distinct.index(tuple(window)) for window in self.windows]
        capacity = min(self.block_size, max(map(len, self.windows)) + n_new)
        self.cache, logits = self._read_anew(distinct, capacity)
        if rows != list(range(len(distinct))):
            self.cache.select(rows)
        self.logits = logits[rows]  # of the token after each row: (B, V), fp32 or better, on the CPU

    @torch.inference_mode()
    def read(self, tokens: Sequence[int]) -> None:
        """Take in one more token of each row."""
        self._make_room()
        for window, token in zip(self.windows, tokens, strict=True):
            window.append(token)
        self.logits = self._logits(self._hidden([[token] for token in tokens], self.cache)[:, -1])

    @torch.inference_mode()
    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order; a row may come more than once."""
        if rows == list(range(len(self.windows))):
            return
        self.windows = [list(self.windows[row]) for row in rows]
        self.logits = self.logits[rows]
        self.cache.select(rows)

    def _make_room(self) -> None:
        """Let rows whose window is full start anew, so that with their next token it is half full."""
        full = [row for row, window in enumerate(self.windows) if len(window) == self.block_size]
        if not full:
            return
        keep = max(1, self.block_size // 2) - 1
        for row in full:
            del self.windows[row][: self.block_size - keep]
            self.cache.lengths[row] = 0
        if keep:
            fresh, _ = self._read_anew([self.windows[row] for row in full], keep)
            self.cache.replace(full, fresh)

    @torch.inference_mode()
    def _read_anew(self, texts: Sequence[Sequence[int]], capacity: int) -> tuple[KVCache, Tensor]:
        """Texts of any lengths into a cache of their own, and the logits after each: (B, V).

        Shorter ones are filled up on their right, where no token of theirs looks.
        """
        longest = max(map(len, texts))
        cache = KVCache(self.model.cfg, len(texts), capacity, like=self.model.token_embedding.weight)
        hidden = self._hidden([[*ids, *[0] * (longest - len(ids))] for ids in texts], cache)
        cache.lengths = [len(ids) for ids in texts]
        return cache, self._logits(hidden[range(len(texts)), [len(ids) - 1 for ids in texts]])

    def _hidden(self, ids: Sequence[Sequence[int]], cache: KVCache) -> Tensor:
        # Not through a compiled call: every length would be compiled anew.
        return self.model.hidden(torch.tensor(ids, device=self.model.token_embedding.weight.device), cache=cache)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.model.head(hidden)
        return (logits.float() if logits.dtype == torch.bfloat16 else logits).cpu()


@torch.no_grad()
def store_for_decoding(model: GPT) -> None:
    """Store every weight with more rows than columns column by column: the same values and shape, other strides.

    A product of few tokens with such a weight (O, I), O > I, then runs 1.4 to 1.8 times as fast on a CPU: the I
    columns are long runs to add up, where the O rows are short dot products. For O <= I rows are faster.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features > module.in_features:
            module.weight.data = module.weight.data.t().contiguous().t()

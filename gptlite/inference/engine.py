"""DecodingBatch: several texts decoded together through one key-value cache, past block_size where needed."""

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
    """Return how many texts to decode together: 64, fewer where their fp32 caches would exceed 1 GiB, at least one."""
    row_bytes = 4 * 2 * cfg.n_layer * cfg.block_size * cfg.n_embd
    return max(1, min(MAX_ROWS, MAX_CACHE_BYTES // row_bytes))


class DecodingBatch:
    """Several texts, one per row, and the logits after each; every row is independent of the others.

    The model sees a window of at most block_size tokens. When a row's window is full, its last half is read again from
    position 0 and the row continues from there. Of a longer prompt, the last block_size tokens are read.
    """

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]], n_new: int) -> None:
        """texts: at least one token each. n_new: the most tokens per row that will be read later."""
        self.model, self.block_size = model, model.cfg.block_size
        self.windows = [list(ids[-self.block_size :]) for ids in texts]
        distinct = list(dict.fromkeys(map(tuple, self.windows)))  # equal prompts are read once
        rows = [distinct.index(tuple(window)) for window in self.windows]
        capacity = min(self.block_size, max(map(len, self.windows)) + n_new)
        self.cache, logits = self._read_texts(distinct, capacity)
        if rows != list(range(len(distinct))):
            self.cache.select(rows)
        self.logits = logits[rows]  # for the next token of each row: (B, V), at least fp32, on the CPU

    @torch.inference_mode()
    def read(self, tokens: Sequence[int]) -> None:
        """Append one token to each row and update the logits."""
        self._restart_full_windows()
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

    def _restart_full_windows(self) -> None:
        """Cut each full window to its end, so that it is half full with the next token, and read it again."""
        full = [row for row, window in enumerate(self.windows) if len(window) == self.block_size]
        if not full:
            return
        keep = max(1, self.block_size // 2) - 1
        for row in full:
            del self.windows[row][: self.block_size - keep]
            self.cache.lengths[row] = 0
        if keep:
            fresh, _ = self._read_texts([self.windows[row] for row in full], keep)
            self.cache.replace(full, fresh)

    @torch.inference_mode()
    def _read_texts(self, texts: Sequence[Sequence[int]], capacity: int) -> tuple[KVCache, Tensor]:
        """Read texts of any lengths into a new cache; also return the logits after each: (B, V).

        Shorter texts are padded on the right, which their own tokens do not attend to.
        """
        longest = max(map(len, texts))
        cache = KVCache(self.model.cfg, len(texts), capacity, like=self.model.token_embedding.weight)
        hidden = self._hidden([[*ids, *[0] * (longest - len(ids))] for ids in texts], cache)
        cache.lengths = [len(ids) for ids in texts]
        return cache, self._logits(hidden[range(len(texts)), [len(ids) - 1 for ids in texts]])

    def _hidden(self, ids: Sequence[Sequence[int]], cache: KVCache) -> Tensor:
        return self.model.hidden(torch.tensor(ids, device=self.model.token_embedding.weight.device), cache=cache)

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.model.head(hidden)
        return (logits.float() if logits.dtype == torch.bfloat16 else logits).cpu()


@torch.no_grad()
def store_for_decoding(model: GPT) -> None:
    """Store every weight (O, I) with O > I in column-major order: the same values and shape with other strides.

    On a CPU, its product with few tokens is then 1.4 to 1.8 times as fast: it adds up I long columns instead of O short
    dot products. For O <= I, rows are faster.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features > module.in_features:
            module.weight.data = module.weight.data.t().contiguous().t()

"""Throughput: tokens per second, model FLOPs utilisation and peak memory. They describe the machine, not the result."""

from __future__ import annotations

from time import perf_counter

from gptlite.compute.device import Compute, peak_bytes
from gptlite.compute.distributed import Dist
from gptlite.compute.matmul_flops import is_emulated, matmul_flops_per_second
from gptlite.config.schema import ModelSection
from gptlite.model.sizes import update_flops

MEASURED_EVERY = 30.0  # seconds: another program may have disturbed the measurement of the peak


class Throughput:
    """Compares the model's arithmetic with the fastest matrix products measured so far; the first are timed here."""

    def __init__(self, model: ModelSection, scored_ids: int, compute: Compute, dist: Dist) -> None:
        self._flops_per_token = update_flops(model, scored_ids, 1)
        self._compute, self._n_processes = compute, dist.world_size
        self._peak, self._has_peak = 0.0, not is_emulated(compute)
        if self._has_peak:
            self._measure()

    def read(self, tokens: int, seconds: float) -> dict[str, float]:
        """Metrics of training on so many tokens in so many seconds.

        mfu is the model FLOPs utilisation: 1 would be training that does nothing but multiply matrices. It is
        left out where the precision is emulated, because the speed of one product says nothing about another's.
        """
        tokens_per_second = tokens / seconds
        memory = peak_bytes(self._compute.device) / 2**20
        if not self._has_peak:
            return {"tokens_per_second": tokens_per_second, "peak_mib": memory}
        if perf_counter() - self._measured_at > MEASURED_EVERY:
            self._measure()
        mfu = tokens_per_second * self._flops_per_token / self._peak
        return {"tokens_per_second": tokens_per_second, "mfu": mfu, "peak_mib": memory}

    def _measure(self) -> None:
        self._peak = max(self._peak, matmul_flops_per_second(self._compute) * self._n_processes)
        self._measured_at = perf_counter()

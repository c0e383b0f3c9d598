"""What is known about a run before it starts: its estimate, and warnings about what is out of proportion."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gptlite.config.schema import RunConfig
from gptlite.data.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.planning.estimate import Estimate, estimate_run
from gptlite.planning.warnings import find_warnings
from gptlite.runs.run import runs_folder


@dataclass(frozen=True)
class RunPlan:
    """An estimate, and warnings, one line each."""

    estimate: Estimate
    warnings: tuple[str, ...]

    def with_measured_peak(self, n_bytes: int) -> RunPlan:
        """The same with the peak memory that was measured."""
        memory = dataclasses.replace(self.estimate.memory, peak=n_bytes)
        return dataclasses.replace(self, estimate=dataclasses.replace(self.estimate, memory=memory))

    def lines(self) -> Iterator[str]:
        """What a person reads when training starts."""
        yield f"plan: {self.estimate}"
        yield from self.warnings


def plan_run(
    cfg: RunConfig,
    prepared: Prepared,
    *,
    available_memory: int,
    libraries: int,
    n_processes: int = 1,
    updates: int | None = None,
) -> RunPlan:
    """The plan for a config without `auto`.

    available_memory: bytes. libraries: that the process held before the model was built. updates: of the whole
    run; None: as many as the config says, if it does.
    """
    tokenizer_bytes = sum(path.stat().st_size for path in (prepared.path / TOKENIZER_FOLDER).iterdir())
    estimate = estimate_run(
        cfg,
        prepared.manifest,
        tokenizer_bytes,
        updates or cfg.train.updates,
        n_processes=n_processes,
        libraries=libraries,
    )
    warnings = find_warnings(
        cfg,
        estimate,
        prepared.manifest,
        prepared.document_lengths("train"),
        memory=available_memory,
        disk=free_bytes(runs_folder(cfg.run.dir).absolute()),
    )
    return RunPlan(estimate, tuple(warnings))


def free_bytes(folder: Path) -> int:
    """Free space on the disk that holds, or will hold, `folder`."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(existing).free

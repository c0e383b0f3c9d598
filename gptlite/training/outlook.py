"""What is said before a run starts: its forecast and what is out of proportion in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.compute.memory import memory_of
from gptlite.config.schema import RunConfig
from gptlite.data.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.planning.estimate import Forecast, forecast
from gptlite.planning.warnings import advice
from gptlite.runs.run import runs_folder


@dataclass(frozen=True)
class Outlook:
    """A forecast, and warnings, one line each."""

    forecast: Forecast
    warnings: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """As a start of training says it."""
        yield f"plan: {self.forecast}"
        yield from self.warnings


def look_ahead(
    cfg: RunConfig, compute: Compute, dist: Dist, prepared: Prepared, libraries: int, updates: int | None = None
) -> Outlook:
    """For a config without `auto`. libraries: bytes that the process held before the model was built.

    updates: as many as the run will make; None: as many as the config says, if it does.
    """
    tokenizer_bytes = sum(path.stat().st_size for path in (prepared.path / TOKENIZER_FOLDER).iterdir())
    foreseen = forecast(
        cfg,
        prepared.manifest,
        tokenizer_bytes,
        updates or cfg.train.updates,
        world_size=dist.world_size,
        libraries=libraries,
    )
    found = advice(
        cfg,
        foreseen,
        prepared.manifest,
        prepared.document_lengths("train"),
        memory=memory_of(compute.device),
        disk=free_bytes(runs_folder(cfg.run.dir).absolute()),
    )
    return Outlook(foreseen, tuple(found))


def free_bytes(folder: Path) -> int:
    """What the disk has left on which `folder` lies or will lie."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free

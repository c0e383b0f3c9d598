"""Processes on this machine that share a run, started and watched by torchrun's engine."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Sequence

SECONDS_TO_STOP = 120  # for an update and a checkpoint, before a process is killed


def run_in_processes(n: int, arguments: Sequence[str]) -> int:
    """Run `gptlite` with these arguments in n processes; return the exit code of the first that failed, else 0.

    A signal is passed on to them. Where one ends with an error, the others are stopped.
    """
    # torch is loaded only where processes are started
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # the processes say what happened
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=n,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        shutdown_timeout=SECONDS_TO_STOP,
    )
    try:
        elastic_launch(config, sys.executable)("-P", "-m", "gptlite", *arguments)
    except ChildFailedError as error:
        code: int = error.get_first_failure()[1].exitcode
        return code if code >= 0 else 128 - code
    except SignalException as error:
        return 128 + int(error.sigval)
    return 0

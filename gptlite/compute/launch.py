"""Processes on this machine that share a run, started and watched by torchrun's engine."""

from __future__ import annotations

import logging
import signal
import sys
import uuid
from collections.abc import Sequence

from gptlite.errors import ProcessFailed

SECONDS_TO_STOP = 120  # for an update and a checkpoint, before a process is killed


def run_in_processes(n: int, arguments: Sequence[str]) -> None:
    """Run `gptlite` with these arguments in n processes. ProcessFailed, with the exit code of the first that failed.

    A signal is passed on to them. Where one ends with an error, the others are stopped.
    """
    # torch is loaded only where processes are started
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

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
    logging.disable()  # the processes say what happened
    try:
        elastic_launch(config, sys.executable)("-P", "-m", "gptlite", *arguments)
    except ChildFailedError as error:
        # Not one that only followed another: it ends with 4, or by the signal that stops it.
        rank, failure = min(
            error.failures.items(), key=lambda each: (each[1].exitcode in (4, 143, -15), each[1].timestamp)
        )
        if failure.exitcode >= 0:
            raise ProcessFailed(failure.exitcode) from None
        name = signal.Signals(-failure.exitcode).name
        sentence = (
            f"process {rank} of 0 to {n - 1} was ended by {name}. What was saved is kept: continue with --resume."
        )
        raise ProcessFailed(128 - failure.exitcode, [sentence]) from None
    except SignalException as error:
        raise ProcessFailed(128 + int(error.sigval)) from None
    finally:
        logging.disable(logging.NOTSET)

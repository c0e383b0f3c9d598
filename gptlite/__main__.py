"""`gptlite`, `python -m gptlite` and `torchrun -m gptlite`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from gptlite.compute.openmp import set_short_spin


def leave(signum: int, frame: FrameType | None) -> None:
    """Nothing has begun, so there is nothing to say or to tidy."""
    os._exit(128 + signum)


def open_streams() -> None:
    """What the caller has closed (`2>&-`) leads nowhere: else the next file to be opened would take its place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def main() -> None:
    """Run the command line. Ctrl-C while Python still loads the program ends it without a traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else someone ignores it, as nohup and a shell's `&` do
        signal.signal(signal.SIGINT, leave)
    open_streams()
    set_short_spin(os.environ, sys.modules)
    from gptlite.cli import app

    signal.signal(signal.SIGINT, usual)
    app.main()


if __name__ == "__main__":
    main()

"""`gptlite`, `python -m gptlite` and `torchrun -m gptlite`."""

from __future__ import annotations

import os
import signal
from types import FrameType


def leave(signum: int, frame: FrameType | None) -> None:
    """Nothing has begun, so there is nothing to say or to tidy."""
    os._exit(128 + signum)


def main() -> None:
    """Run the command line. Ctrl-C while Python still loads the program ends it without a traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else someone ignores it, as nohup and a shell's `&` do
        signal.signal(signal.SIGINT, leave)
    from gptlite.cli import app

    signal.signal(signal.SIGINT, usual)
    app.main()


if __name__ == "__main__":
    main()

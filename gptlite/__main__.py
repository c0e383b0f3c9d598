"""Entry point of `gptlite` and `python -m gptlite`."""

from __future__ import annotations

import gc
import os
import signal
import sys

from gptlite.compute.limits import set_short_spin


def open_streams() -> None:
    """Open /dev/null for streams that the caller has closed (`2>&-`), so that no other file gets their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def main() -> None:
    """Run the command line. Ctrl-C while its modules are imported ends it without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # otherwise it is ignored, as under nohup and a shell's `&`
        signal.signal(signal.SIGINT, lambda signum, frame: os._exit(128 + signum))  # at once: nothing has started yet
    open_streams()
    set_short_spin(os.environ, sys.modules)
    from gptlite.cli import app

    signal.signal(signal.SIGINT, before)
    code = app.run(sys.argv[1:])
    gc.freeze()  # or Python looks through every object of torch for garbage once more: 0.3 s of a command
    sys.exit(code)


if __name__ == "__main__":
    main()

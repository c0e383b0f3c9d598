"""The terminal as training and sampling see it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from gptlite.files import storage_errors
from gptlite.loggers.progress_bar import ERASE, ConsoleSink, has_cursor

if TYPE_CHECKING:
    from gptlite.loggers.metrics import Sink


class Console:
    """Lines and, unless `quiet`, the progress bar, on standard error: standard output is for results."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._sink: ConsoleSink | None = None

    def say(self, line: str) -> None:
        """One line, above the bar if there is one."""
        if self._sink is not None:
            self._sink.say(line)
        else:
            try:
                print(line, file=sys.stderr, flush=True)
            except OSError:  # nobody listens: no reason to stop
                drop(sys.stderr)

    def say_at_once(self, line: str) -> None:
        """One line from a signal handler: past the stream, which a handler must not enter a second time."""
        start = ERASE if has_cursor(sys.stderr) else ""  # the bar, and the ^C that was typed
        with contextlib.suppress(OSError):  # a terminal that is gone, as for the bar
            os.write(sys.stderr.fileno(), f"{start}{line}\n".encode())

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """The bar."""
        self._sink = ConsoleSink(sys.stderr, total=total, start=start, in_seconds=in_seconds, quiet=self._quiet)
        return [self._sink]

    def progress(self, step: int, loss: float | None = None) -> None:
        """Move the bar."""
        if self._sink is not None:
            self._sink.progress(step, loss)


def emit(text: str) -> None:
    """Results to standard output, at once; a character that it cannot show becomes "?". StorageError on a full disk."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        drop(sys.stdout)
        if isinstance(error, BrokenPipeError):  # Typer would make it exit code 1
            raise typer.Exit(0) from None
        with storage_errors(Path("standard output"), "write"):
            raise


def drop(stream: TextIO) -> None:
    """Whoever read it has left (`| head`): no more of it, and no complaint when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

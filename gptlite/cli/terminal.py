"""Output: progress and messages on standard error, results and tables on standard output or in a file of `--out`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.cells import cell_len, set_cell_size  # rich.console takes long to import

from gptlite.errors import ConfigError, DataError
from gptlite.loggers.metrics import Listener, Sink
from gptlite.loggers.progress_bar import ERASE, ConsoleSink, has_cursor
from gptlite.storage.files import storage_errors

# What could control a terminal or reorder what it shows: control characters (C0 without tab and newline, DEL, C1), line
# separators, bidirectional embeddings, overrides and isolates, and lone surrogates.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

GAP = 2  # between the columns of a table
LONGEST = 24  # columns of a cell in a table that does not fit the terminal

# After these words, other layers write the keys and values that they advise.
_ADVISED_KEY = re.compile(r"(?:(?<=\b[Uu]se )|(?<=\bor )|(?<=\band ))(?=[a-z]+\.[a-z]\w*=)")

NO_MASK = (  # of a run
    "has no mask (model.variant: no_mask): it reads the tokens that it is scored on, so its scores are no predictions"
)


def escaped(text: str) -> str:
    r"""Return a text that cannot control a terminal: `\x1b` for the character ESC. Newlines and tabs stay."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def pasteable(line: str) -> str:
    """Return a line of another layer with the option for the keys that it advises.

    >>> pasteable("Use run.device=auto or run.device=cpu.")
    'Use --set run.device=auto or --set run.device=cpu.'
    """
    return _ADVISED_KEY.sub("--set ", line)


def on_one_line(text: str) -> str:
    r"""Return what `escaped` does, with `\n` and `\t` for newlines and tabs."""
    return escaped(text).replace("\n", r"\n").replace("\t", r"\t")


class Console(Listener):
    """Messages and the progress bar on standard error. A `quiet` one shows neither, only the answer to a signal.

    verbose: with details. as_json: what happens is written to standard output, too, a JSON object on each line.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, as_json: bool = False) -> None:
        self._quiet, self._verbose, self._as_json = quiet, verbose, as_json
        self._sink: ConsoleSink | None = None

    def say(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        line = pasteable(line)
        self.event("message", {"text": line})
        if self._quiet:
            return
        for part in escaped(line).split("\n"):
            if self._sink is not None:
                self._sink.say(part)
                continue
            try:
                print(part, file=sys.stderr, flush=True)
            except OSError:  # nobody reads it any more, which is no reason to stop
                drop(sys.stderr)

    def detail(self, line: str) -> None:
        if self._verbose:
            self.say(line)

    def event(self, kind: str, fields: Mapping[str, Any]) -> None:
        if self._as_json:
            try:
                emit(json.dumps({"event": kind, **fields}, ensure_ascii=False) + "\n")
            except typer.Exit:  # nobody reads it any more, which is no reason to stop
                self._as_json = False

    def say_at_once(self, line: str) -> None:
        """Print a line from a signal handler. It bypasses the stream, which a handler must not enter a second time."""
        start = ERASE if has_cursor(sys.stderr) else ""  # erases the bar and the ^C that was typed
        with contextlib.suppress(OSError):  # the terminal may be closed
            os.write(sys.stderr.fileno(), f"{start}{escaped(line)}\n".encode())

    def begin(self, total: float, start: float, *, in_seconds: bool) -> Sequence[Sink]:
        """Open the progress bar."""
        events = [EventSink(self.event)] if self._as_json else []
        if self._quiet:
            return events
        self._sink = ConsoleSink(sys.stderr, total=total, start=start, in_seconds=in_seconds)
        return [self._sink, *events]

    def progress(self, step: int, loss: float | None = None) -> None:
        """Move the progress bar."""
        if self._sink is not None:
            self._sink.progress(step, loss)


class EventSink(Sink):
    """Passes on numbers and samples as events: those of training as `log`, the others as `evaluation`."""

    def __init__(self, event: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._event = event

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        finite = {name: x if math.isfinite(x) else None for name, x in {**values, **time}.items()}
        self._event("log" if split == "train" else "evaluation", {"step": step, **finite})

    def log_sample(self, step: int, text: str) -> None:
        self._event("sample", {"step": step, "text": text})


def emit(text: str) -> None:
    """Write results to standard output, with "?" for what it cannot show. Raises StorageError on a full disk.

    A terminal gets the text escaped; elsewhere it is written as it is.
    """
    encoding = sys.stdout.encoding or "utf-8"
    text = escaped(text) if sys.stdout.isatty() else text
    with storage_errors(Path("standard output"), "write"):
        try:
            sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
            sys.stdout.flush()
        except OSError as error:
            drop(sys.stdout)
            if isinstance(error, BrokenPipeError):  # Typer would make it exit code 1
                raise typer.Exit(0) from None
            raise


def drop(stream: TextIO) -> None:
    """Discard the rest of a stream whose reader has closed it (`| head`), so that Python can close it in silence."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def next_commands(commands: Sequence[str], folder: Path) -> list[str]:
    """Return lines that name the commands to go on with: those of gptlite, and TensorBoard."""
    tensorboard = f"  {shell_name('tensorboard')} --logdir {shlex.quote(str(folder))}"
    lines = [*(f"  {shell_name('gptlite')} {command}" for command in commands), tensorboard]
    return ["next:", *map(on_one_line, lines)]


def shell_name(program: str) -> str:
    """Return a program of this environment as the calling shell finds it: its name if PATH has it, else its path."""
    beside_python = Path(sys.executable).parent / program
    return shlex.quote(str(beside_python)) if shutil.which(program) is None and beside_python.exists() else program


def check_text_file(file: str, where: str) -> None:
    """DataError if there is no such file, or if it is a folder."""
    if Path(file).is_dir():
        raise DataError("this is a folder, not a text file. Name a file in it.", where=where)
    if not Path(file).exists():
        raise DataError("there is no such file.", where=where)


def output_path(names: Sequence[str], out: str | None, ending: str) -> Path:
    """Return where output for these runs goes: --out, or RUN-ending. ConfigError, before any work is done for it, if no
    file can be written there, or if its name ends in another type than that of `ending`."""
    more = f"-and-{len(names) - 1}-more" if len(names) > 1 else ""
    path, suffix = Path(f"{names[0]}{more}-{ending}" if out is None else out), Path(ending).suffix
    if suffix and path.suffix not in ("", suffix):  # a pipe and a device have none
        raise ConfigError(
            f"what is written there is {suffix[1:].upper()}. End the name in {suffix}.", where=f"--out {path}"
        )
    if path.is_dir():
        raise ConfigError("this is a folder. Name a file in it.", where=f"--out {path}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}. Make it first, or choose another.", where=f"--out {path}")
    return path


def write_output(path: Path, text: str) -> None:
    """Write a file, also behind a link, or into a pipe or a device such as /dev/stdout. Raises StorageError."""
    with storage_errors(path, "write"):
        path.write_bytes(text.encode())


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def format_table(
    columns: Mapping[str, Sequence[str]], *, numbers: Sequence[str] = (), dropped: Sequence[str] = ()
) -> str:
    """Return a table with one line per row, from cells by header. It fits a terminal, and has its full width elsewhere.

    numbers: right-aligned columns. dropped: columns to leave out of a narrow terminal, in this order.
    """
    cells = {on_one_line(header): [on_one_line(cell) for cell in (header, *cells)] for header, cells in columns.items()}
    widths = {header: max(map(cell_len, column)) for header, column in cells.items()}
    terminal = terminal_width()
    if terminal is not None and _total(widths) > terminal:
        widths = {header: min(size, LONGEST) for header, size in widths.items()}
        for header in dropped:
            if _total(widths) > terminal:
                widths.pop(header, None)
    aligned = [
        [_align(cell, size, right=header in numbers) for cell in cells[header]] for header, size in widths.items()
    ]
    return "".join((" " * GAP).join(line).rstrip() + "\n" for line in zip(*aligned, strict=True))


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def shorten_middle(text: str, width: int) -> str:
    """Shorten a text to `width` columns, keeping its beginning and its end, at which numbered names differ."""
    if cell_len(text) <= width:
        return text
    start = set_cell_size(text, width // 2)
    return f"{start}…{set_cell_size(text[::-1], width - width // 2 - 1)[::-1]}"


def _align(cell: str, width: int, *, right: bool) -> str:
    cell = shorten_middle(cell, width)
    space = " " * (width - cell_len(cell))
    return space + cell if right else cell + space

"""The `gptlite` command: its subcommands, exit codes, and the one place where errors are printed."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from gptlite.cli import export, lesson, prepare
from gptlite.cli.eval import command as evaluate
from gptlite.cli.runs import command as runs
from gptlite.cli.sample import command as sample
from gptlite.cli.terminal import Console, drop, emit, on_one_line, shell_name
from gptlite.cli.train import command as train
from gptlite.cli.usage import Command, Commands, usage_problem
from gptlite.compute.processes import is_main, leave_group, local_world_size, world_size
from gptlite.errors import ConfigError, DataError, Diverged, Interrupted, StorageError, UserError
from gptlite.storage.files import storage_errors
from gptlite.version import __version__

# rich_markup_mode=None: Rich would print errors in boxes, and takes a tenth of a second to import.
app = typer.Typer(
    name="gptlite",
    cls=Commands,
    help="Train small GPTs on your own text, sample from them, and score them.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("prepare", cls=Command)(prepare.prepare)
app.command("train", cls=Command)(train.train)
app.command("sample", cls=Command)(sample.sample)
app.command("eval", cls=Command)(evaluate.evaluate)
app.command("export", cls=Command)(export.export)
app.command("report", cls=Command)(runs.report)
app.command("lesson", cls=Command)(lesson.lesson)
app.add_typer(runs.app)


@app.command("config", cls=Command)
def config(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A config, such as small. Default: list those that are shipped."),
    ] = None,
) -> None:
    """List the shipped configs, or print a config with a comment on every key.

    To start from one: `gptlite config small > my.yaml`.
    """
    from gptlite.config.documents import commented, read_heading
    from gptlite.config.loading import SUFFIXES, builtin_folder, find_config, load_config

    if name is not None:
        path = find_config(name)
        emit(commented(load_config(path), read_heading(path.read_text(encoding="utf-8"))))
        return
    shipped = sorted(builtin_folder("configs").glob(f"*{SUFFIXES[0]}"))
    width = max(len(path.stem) for path in shipped) + 2
    for path in shipped:  # with the first sentence of its heading
        lines = read_heading(path.read_text(encoding="utf-8")).splitlines()
        words = " ".join(line.removeprefix("# ") for line in lines if "yaml-language-server" not in line)
        emit(f"{path.stem:<{width}}{words.partition('. ')[0].removesuffix('.')}.\n")


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"gptlite {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def print_error(error: UserError) -> None:
    """Print an error, one line per problem. A stop by a signal is not an error; the command that continues follows."""
    if isinstance(error, Interrupted | Diverged) and not is_main():
        return  # all processes of a run end at the same step
    prefix = "" if isinstance(error, Interrupted) else "error: "
    for problem in error.problems:
        where = "" if problem.where is None else f"{on_one_line(problem.where)}: "  # a file name may have newlines
        Console().say(f"{prefix}{where}{problem.sentence}")
    if isinstance(error, Interrupted) and error.handle is not None:
        processes = f" --nproc {world_size()}" if world_size() == local_world_size() > 1 else ""
        command = f"{shell_name('gptlite')} train --resume {shlex.quote(error.handle)}{processes}"
        Console().say(f"continue with:\n  {command}")


def as_user_error(error: OSError | MemoryError | RuntimeError) -> UserError | None:
    """Turn what the system refused or had too little of into an error of one line; None for a bug."""
    if isinstance(error, OSError):
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "gptlite"
        try:
            with storage_errors(Path(where), "go on"):
                raise error
        except StorageError as storage_error:
            return storage_error
    if isinstance(error, RecursionError):
        return DataError("the input is nested too deeply. Probably a damaged file.")
    # torch raises a RuntimeError, on a GPU a subclass of it.
    if isinstance(error, MemoryError) or re.search("allocate memory|out of memory", str(error)):
        return ConfigError(
            "the memory is full. Lower the size of the model, of the batches (train.micro_batch_size, "
            "eval.batch_size, the samples at a time) or of the text, or stop other programs."
        )
    return None


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Only bugs raise."""
    try:
        code = app(args=list(arguments), prog_name="gptlite", standalone_mode=False)
        if code == 130:  # Typer's answer to Ctrl-C outside of training
            Console().say("interrupted")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        print_error(error)
        return error.exit_code
    except TyperException as error:
        print_error(ConfigError(usage_problem(error)))
        return ConfigError.exit_code
    except BrokenPipeError:
        drop(sys.stdout)
        return 0
    except (OSError, MemoryError, RuntimeError) as error:
        answer = as_user_error(error)
        if answer is None:
            raise
        print_error(answer)
        return answer.exit_code
    finally:
        leave_group()

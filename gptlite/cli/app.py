"""The `gptlite` command: its sub-commands, and the one form in which errors reach the user."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from gptlite.cli import prepare
from gptlite.cli.eval import command as evaluate
from gptlite.cli.runs import command as runs
from gptlite.cli.sample import command as sample
from gptlite.cli.terminal import Console, drop
from gptlite.cli.train import command as train
from gptlite.cli.usage import Command, Commands
from gptlite.errors import UserError
from gptlite.version import __version__

# rich_markup_mode: Rich's boxes would hide the house form of errors, and cost a tenth of a second at start-up.
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
app.add_typer(runs.app)


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        print(f"gptlite {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def complain(problems: Iterable[object]) -> None:
    """One line per problem, on standard error."""
    for problem in problems:
        Console().say(f"error: {problem}")


def usage_problem(error: TyperException, arguments: Sequence[str]) -> str:
    """What is wrong with the command line, in the house form."""
    where = " ".join(["gptlite", *_commands_in(arguments)])
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return f"{where}: {message[:1].lower()}{message[1:]}; see {where} --help"


def _commands_in(arguments: Sequence[str]) -> list[str]:
    """The words that name a command, and one behind `runs`."""
    if list(arguments[:1]) == ["runs"]:
        inner = [command.name for command in runs.app.registered_commands]
        return ["runs", *(word for word in arguments[1:2] if word in inner)]
    commands = [command.name for command in app.registered_commands]
    return [word for word in arguments[:1] if word in commands]


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Only bugs raise."""
    try:
        code = app(args=list(arguments), prog_name="gptlite", standalone_mode=False)
        if code == 130:  # Typer's answer to Ctrl-C, where no training was there to save anything
            complain(["interrupted"])
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        complain(error.problems)
        return error.exit_code
    except TyperException as error:
        complain([usage_problem(error, arguments)])
        return UserError.exit_code
    except BrokenPipeError:
        drop(sys.stdout)
        return 0


def main() -> None:
    """Run the words that the program was started with, and leave with the exit code."""
    sys.exit(run(sys.argv[1:]))

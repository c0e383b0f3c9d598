"""Mistakes on the command line, with what was probably meant: unknown options and words, options given twice."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gptlite.cli.options import option_name, settable
from gptlite.cli.terminal import on_one_line
from gptlite.errors import ConfigError, Problem
from gptlite.formatting import and_more
from gptlite.other_programs import meaning

# What a word without an option is likely to be.
_WORDS = {"--data": "a text", "--prompt": "a text", "--config": "a config", "--set": "a key=value"}


class _Checked:
    """Refuses what Typer would ignore, such as an option given twice."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command, or before its name. Raises ConfigError."""
        try:
            _, extra, given = self.make_parser(ctx).parse_args(list(args))
        except TyperException as error:
            raise ConfigError(usage_problem(error, ctx)) from None
        problems = [
            Problem("this option is given more than once. Keep one of its values.", option_name(param))
            for param in dict.fromkeys(given)
            if given.count(param) > 1 and not param.multiple and not param.is_flag
        ]
        if extra and isinstance(self, TyperCommand):
            known = options_of(self)
            meant = ", ".join(f"{option} before {word}" for option, word in _WORDS.items() if option in known)
            write = "Quote globs, and write" if "--data" in known else "Write"
            advice = f"{write} {meant}." if meant else f"See {ctx.command_path} --help."
            shown = on_one_line(and_more([shlex.quote(word) for word in extra], 3))
            problems.append(Problem(f"unexpected argument {shown}. {advice}", ctx.command_path))
        if problems and not any(param.is_eager for param in given):  # --help, whatever else is given
            raise ConfigError(problems)
        return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]


class Command(_Checked, TyperCommand):
    """A command with checked arguments."""


class Commands(_Checked, TyperGroup):
    """A group of commands with checked arguments."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names. Raises ConfigError."""
        if args[0] not in self.commands:
            near = difflib.get_close_matches(args[0], self.commands, n=1, cutoff=0.7)
            advice = f"Did you mean {near[0]}?" if near else f"See {ctx.command_path} --help."
            advice = meaning("gptlite", args[0]) or advice
            raise ConfigError(f"there is no command {args[0]}. {advice}", where=ctx.command_path)
        return super().resolve_command(ctx, args)


def options_of(command: Any) -> list[str]:
    """Return the options of a command in every spelling."""
    return [option for param in command.params if param.param_type_name == "option" for option in param.opts]


def usage_problem(error: Any, context: Any = None) -> Problem:
    """Put a mistake that Typer found into the form of our own errors."""
    context = context or getattr(error, "ctx", None)
    where = "gptlite" if context is None else context.command_path
    if hasattr(error, "possibilities"):  # its class, which is private, is that of an unknown option
        return _unknown_option(where, error.option_name, options_of(context.command))
    message = error.format_message().partition(", unable to parse")[0].strip().rstrip(".").replace("\n", " ")
    message = message.replace("Input should be", "this must be").replace("Value error, ", "")  # Pydantic's words
    return Problem(f"{message[:1].lower()}{message[1:]}. See {where} --help.", where)


def _unknown_option(where: str, typed: str, known: Sequence[str]) -> Problem:
    """Return the problem of an unknown option."""
    from gptlite.config.keys import explain_key

    command, word = where.rpartition(" ")[2], typed.lstrip("-")
    advice = meaning(command, word) or (explain_key(word) if command == "train" else None) or word
    if " " not in advice:
        meant = _meant(command, advice.lstrip("-").replace("_", "-"), known)
        advice = f"Did you mean {' or '.join(meant)}?" if meant else f"See {where} --help."
    return Problem(f"there is no option {typed}. {advice.replace('{command}', command)}", where)


def _meant(command: str, word: str, known: Sequence[str]) -> list[str]:
    """Return what an unknown option may stand for: a key that others call so, an option that it resembles, a key."""
    from gptlite.config.keys import KEYS, suggest_key

    key = meaning("key", word)
    similar = difflib.get_close_matches(f"--{word}", known, n=1, cutoff=0.8)
    keys = [key] if key in KEYS else [] if similar else suggest_key(None, word)
    of_keys = [_as_option(key, known) for key in keys if "--set" in known and settable(command, key)]
    return of_keys or similar


def _as_option(key: str, known: Sequence[str]) -> str:
    """Return the option that sets a key."""
    section, _, leaf = key.partition(".")
    option = {"source": "--data", "n": "-n"}.get(leaf, f"--{leaf.replace('_', '-')}")
    return option if option in known and section in ("data", "sample") else f"--set {key}=VALUE"

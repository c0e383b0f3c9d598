"""Mistakes on the command line, with what was probably meant: unknown options and words, options given twice."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
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
        """Parse the arguments of the command, or before its name. Raises ConfigError with all unknown ones."""
        known = {option: param for param in self.params if param.param_type_name == "option" for option in param.opts}
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = True  # they stay among the words
        parser._args.clear()
        try:
            _, words, given = parser.parse_args(list(args))
        except TyperException as error:  # an option without its value, say
            raise ConfigError(usage_problem(error, ctx)) from None
        problems: list[Problem] = []
        plain: list[str] = []
        while words and "--" not in args and not (plain and isinstance(self, TyperGroup)):
            word = words.pop(0)
            if not word.startswith("-") or word == "-":
                plain.append(word)
                continue
            typed, equals, value = word.partition("=")
            if not equals and words and (not words[0].startswith("-") or words[0][1:2].isdigit()):
                value = words.pop(0)
            problems.append(_unknown_option(ctx.command_path, typed, value, known))
        problems += [
            Problem("this option is given more than once. Keep one of its values.", option_name(param))
            for param in dict.fromkeys(given)
            if given.count(param) > 1 and not param.multiple and not param.is_flag
        ]
        taken = [param.nargs for param in self.params if param.param_type_name == "argument"]
        extra = plain[sum(taken) :] if isinstance(self, TyperCommand) and -1 not in taken else []
        if extra:
            meant = ", ".join(f"{option} before {word}" for option, word in _WORDS.items() if option in known)
            advice = f"Write {meant}." if meant else f"See {ctx.command_path} --help."
            shown = and_more([_quoted(word) for word in extra], 3)
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


def usage_problem(error: TyperException, context: Any = None) -> Problem:
    """Put a mistake that Typer found into the form of our own errors."""
    context = context or getattr(error, "ctx", None)
    where = "gptlite" if context is None else context.command_path
    message = error.format_message().partition(", unable to parse")[0].strip().rstrip(".").replace("\n", " ")
    message = message.replace("Input should be", "this must be")  # Pydantic's words
    return Problem(f"{message[:1].lower()}{message[1:]}. See {where} --help.", where)


def _unknown_option(where: str, typed: str, value: str, known: Mapping[str, Any]) -> Problem:
    """Return the problem of an unknown option and its value, "" for none."""
    from gptlite.config.keys import explain_key

    command, name = where.rpartition(" ")[2], typed.replace("_", "-")
    word = name.lstrip("-")
    advice = meaning(command, word) or (explain_key(word) if command == "train" else None)
    if advice is None and word.startswith("no-") and not value:
        name, value = f"--{word[3:]}", "false"
    if advice is None or " " not in advice:
        meant = _meant(command, name, known) if advice is None else [advice]
        choice = " or ".join(_with_value(key, value, known) for key in meant)
        advice = f"Did you mean {choice}?" if meant else f"See {where} --help."
    advice = advice.replace("{command}", command).replace("{value}", _quoted(value) if value else "VALUE")
    return Problem(f"there is no option {typed}. {advice}", where)


def _meant(command: str, typed: str, known: Mapping[str, Any]) -> list[str]:
    """Return what an unknown option may stand for: a key that others call so, an option that it resembles, a key."""
    from gptlite.config.keys import KEYS, suggest_key

    key = meaning("key", typed.strip("-"))
    if key in KEYS and "--set" in known and settable(command, key):
        return [key]
    options = [option for option in known if option != "--help"]
    begun = [option for option in options if len(typed) > 4 and option.startswith(typed)]
    similar = begun or difflib.get_close_matches(typed, options, n=1, cutoff=0.8)
    if similar or "--set" not in known:
        return similar
    keys = [key for key in suggest_key(None, typed.strip("-").replace("-", "_")) if settable(command, key)]
    own = [key for key in keys if key.startswith(f"{command}.")] or [key for key in keys if key[:7] != "sample."]
    return own or keys


def _with_value(meant: str, value: str, known: Mapping[str, Any]) -> str:
    """Return an option or a key with the value that was given to another one, as far as it takes it."""
    from gptlite.config.keys import describe_accepted, is_accepted
    from gptlite.config.yaml import parse_scalar

    key = meant.partition(".")[2]
    leaf = key.replace("_", "-")
    of_key = "--data" if meant == "data.source" else f"-{leaf}" if len(leaf) == 1 else f"--{leaf}"
    option = of_key if key else meant
    if option in known:
        return f"{option} {_quoted(value)}" if value and not known[option].is_flag else option
    given = parse_scalar(value) if value else True
    if is_accepted(meant, given):
        return f"--set {meant}={_quoted(value or 'true')}"
    return f"--set {meant}=VALUE ({describe_accepted(meant)})"


def _quoted(word: str) -> str:
    """Write a word as a shell takes it, on one line."""
    return on_one_line(shlex.quote(word))

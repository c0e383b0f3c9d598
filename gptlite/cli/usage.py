"""Mistakes on the command line, all reported at once and before any option acts, with what was probably meant."""

from __future__ import annotations

import difflib
import shlex
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gptlite.cli.options import option_name, settable
from gptlite.cli.terminal import on_one_line
from gptlite.errors import ConfigError, Problem
from gptlite.formatting import and_more
from gptlite.other_programs import meaning

_TEXT_OPTIONS = ("--data", "--prompt")  # what a word without an option is likely to be
_TYPES = {int: "a whole number", float: "a number"}


class _Checked:
    """Refuses what Typer would ignore, such as an option given twice."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command, or before its name. Raises ConfigError with all mistakes in them."""
        known = {option: param for param in self.params if param.param_type_name == "option" for option in param.opts}
        problems: list[Problem] = []
        left = list(args)
        while True:
            rest = list(left)  # the parser takes from it
            try:
                values, extra, order = self.make_parser(ctx).parse_args(rest)
                break
            except TyperException as error:
                name = getattr(error, "option_name", None)
                if name is None or name in known:  # an option without its value, say
                    raise ConfigError([*problems, usage_problem(error, ctx)]) from None
                at = len(left) - len(rest) - 1
                typed, equals, value = left[at].partition("=")
                if not equals and rest and (not rest[0].startswith("-") or rest[0][1:2].isdigit()):
                    value = rest.pop(0)
                left[at:] = rest
                typed = typed if typed.startswith(name) else name  # one letter among others, as in -qx
                problems.append(Problem(_unknown_option(ctx.command_path, typed, value, known), ctx.command_path))
        given = Counter(param for param in order if param in known.values())
        if not any(param.is_eager for param in given):  # --help, whatever else is given
            problems += _bad_values(given, values, ctx)
            if extra and isinstance(self, TyperCommand):
                problems.append(Problem(_unexpected(ctx.command_path, extra, known), ctx.command_path))
        if problems:
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
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return Problem(f"{message[:1].lower()}{message[1:]}. See {where} --help.", where)


def _bad_values(given: Mapping[Any, int], values: Mapping[str, Any], ctx: Any) -> list[Problem]:
    """Return the problems of options that have a value which Typer refuses, or too many."""
    problems = []
    for param, times in given.items():
        try:
            param.handle_parse_result(ctx, values, [])
        except TyperException as error:
            annotation = param.type_descriptor.annotation
            choices = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()
            expected = f"one of {', '.join(choices)}" if choices else _TYPES.get(annotation)
            own = Problem(f"{values[param.name]} is not {expected}.", param.opts[0])
            problems.append(own if expected else usage_problem(error, ctx))
        if times > 1 and not param.multiple and not param.is_flag:
            sentence = f"this option takes one value and is given {times} times. Keep one of them."
            problems.append(Problem(sentence, option_name(param)))
    return problems


def _unexpected(where: str, words: Sequence[str], known: Mapping[str, Any]) -> str:
    """Return the sentence about words that belong to no option."""
    from gptlite.config.loading import SUFFIXES

    key, equals, value = words[0].partition("=")
    meant = next((option for option in _TEXT_OPTIONS if option in known), None)
    if "--config" in known and Path(words[0]).suffix in SUFFIXES:
        meant = "--config"
    advice = f"Did you mean {meant} {_quoted(words[0])}?" if meant else f"See {where} --help."
    if equals and "--set" in known and (named := _meant(where.rpartition(" ")[2], f"--{key}", known)):
        advice = f"Did you mean {_with_value(named[0], value, known)}?"
    elif meant == "--data" and len(words) > 1:
        advice = "Put --data before each of them, or give one --data with a glob in quotes."
    elif meant == "--data" and Path(words[0]).suffix == ".py":
        advice = "A config is YAML: --config FILE.yaml (gptlite config lists those there are). A text needs --data."
    shown = and_more([_quoted(word) for word in words], 3)
    return f"unexpected argument{'' if len(words) == 1 else 's'} {shown}. {advice}"


def _unknown_option(where: str, typed: str, value: str, known: Mapping[str, Any]) -> str:
    """Return the sentence about an unknown option and its value, "" for none."""
    from gptlite.config.keys import explain_key

    command, name = where.rpartition(" ")[2], typed.replace("_", "-")
    word = name.lstrip("-")
    advice = meaning(command, word) or (explain_key(word) if command == "train" else None)
    if advice is None and word.startswith("no-") and not value and f"--{word[3:]}" not in known:
        name, value = f"--{word[3:]}", "false"
    if advice is None or " " not in advice:
        meant = _meant(command, name, known) if advice is None else [advice]
        choice = " or ".join(_with_value(key, value, known) for key in meant)
        advice = f"Did you mean {choice}?" if meant else f"See {where} --help."
    advice = advice.replace("{command}", command).replace("{value}", _quoted(value) if value else "VALUE")
    return f"there is no option {typed}. {advice}"


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
    from gptlite.config.keys import accepted_repairs, describe_accepted, is_accepted
    from gptlite.config.yaml import parse_scalar, write

    key = meant.partition(".")[2]
    leaf = key.replace("_", "-")
    of_key = "--data" if meant == "data.source" else f"-{leaf}" if len(leaf) == 1 else f"--{leaf}"
    option = of_key if key else meant
    if option in known:
        return f"{option} {_quoted(value)}" if value and not known[option].is_flag else option
    given = parse_scalar(value) if value else True
    if is_accepted(meant, given):
        return f"--set {meant}={_quoted(value or 'true')}"
    repair = next(accepted_repairs(meant, given), None) if value else None
    if repair is not None:
        return f"--set {meant}={_quoted(write(repair))}"
    return f"--set {meant}=VALUE ({describe_accepted(meant)})"


def _quoted(word: str) -> str:
    """Write a word as a shell takes it, on one line."""
    return on_one_line(shlex.quote(word))

"""Mistakes on the command line itself, found before any option acts: one line each, with what was probably meant."""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gptlite.cli.options import settable
from gptlite.errors import ConfigError

_TEXT_OPTIONS = ("--data", "--prompt")  # what a word without an option is likely to be


class Command(TyperCommand):
    """One command, which refuses what Typer would pass over."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words behind the command's name; ConfigError for those that make no sense."""
        extra = check_words(self, ctx, args)
        if extra:
            raise ConfigError(_extra_words(ctx.command_path, extra, _options_of(self)))
        return super().parse_args(ctx, args)


class Commands(TyperGroup):
    """All commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words up to the command's name; ConfigError for those that make no sense."""
        check_words(self, ctx, args)
        return super().parse_args(ctx, args)


def check_words(command: TyperCommand | TyperGroup, ctx: Any, args: Sequence[str]) -> list[str]:
    """The words that no option or argument takes. ConfigError for unknown options, and for repeated ones where Typer
    would silently take the last."""
    try:
        _, extra, order = command.make_parser(ctx).parse_args(list(args))
    except TyperException as error:
        name, known = getattr(error, "option_name", None), _options_of(command)
        if name is None or name in known:
            raise
        raise ConfigError(_unknown_option(ctx.command_path, name, args, known)) from None
    if any(param.is_eager for param in order):  # --help: whatever else was typed
        return []
    given = Counter(param for param in order if param.param_type_name == "option")
    problems = [
        f"{max(param.opts, key=len)} = given {times} times: it takes one value; leave the others out"
        for param, times in given.items()
        if times > 1 and not getattr(param, "multiple", False) and not getattr(param, "is_flag", False)
    ]
    if problems:
        raise ConfigError(problems)
    return extra


def _options_of(command: TyperCommand | TyperGroup) -> list[str]:
    return [option for param in command.params if param.param_type_name == "option" for option in param.opts]


def _extra_words(where: str, words: Sequence[str], known: Collection[str]) -> str:
    """What to say of words that stand on their own."""
    from gptlite.config.loading import SUFFIXES

    meant = next((option for option in _TEXT_OPTIONS if option in known), None)
    if "--config" in known and Path(words[0]).suffix in SUFFIXES:
        meant = "--config"
    advice = f"did you mean {meant} {shlex.quote(words[0])}?" if meant else f"see {where} --help"
    if meant == "--data" and len(words) > 1:
        advice = "put --data before each of them, or a glob between quotes behind one --data"
    shown = ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
    return f"{where}: unexpected argument: {shown}; {advice}"


def _unknown_option(where: str, name: str, args: Sequence[str], known: Collection[str]) -> str:
    """What to say of an option that there is not."""
    at = next(i for i, word in enumerate(args) if word.startswith(name))
    typed, equals, value = args[at].partition("=")
    if not equals and at + 1 < len(args) and not args[at + 1].startswith("--"):
        value = args[at + 1]
    meant = _meant(where.rpartition(" ")[2], typed, value, [option for option in known if option != "--help"])
    advice = f"did you mean {' or '.join(meant)}?" if meant else f"see {where} --help"
    return f"{where}: no such option: {typed}; {advice}"


def _meant(command: str, typed: str, value: str, known: Collection[str]) -> list[str]:
    """Options, or keys behind --set, that an unknown option may stand for: a slip of the fingers, else a key of the
    config by any of its names, else whatever is nearest."""
    from gptlite.config.suggest import suggest_key

    slip = difflib.get_close_matches(typed, known, n=1, cutoff=0.8)
    if slip or "--set" not in known:
        return slip or difflib.get_close_matches(typed, known, n=1)
    word = typed.lstrip("-").replace("-", "_")
    keys = [key for key in suggest_key(None, word) if settable(command, key)]
    own = [option for key in keys if (option := _option_of_key(key)) in known]
    # Another program's word for a key may count in another unit: epochs are no steps.
    values = {key: shlex.quote(value) if value and key.endswith(f".{word}") else "VALUE" for key in keys}
    as_set = [f"--set {key}={values[key]}" for key in keys]
    return own or as_set or difflib.get_close_matches(typed, known, n=1, cutoff=0.7)


def _option_of_key(key: str) -> str:
    leaf = key.partition(".")[2].replace("_", "-")
    return "--data" if key == "data.source" else f"-{leaf}" if len(leaf) == 1 else f"--{leaf}"

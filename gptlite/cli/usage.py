"""Mistakes on the command line, all reported at once and before any option acts, with what was probably meant."""

from __future__ import annotations

import difflib
import shlex
import typing
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gptlite.cli.options import option_name, settable
from gptlite.errors import ConfigError, Problem
from gptlite.formatting import and_more

_TEXT_OPTIONS = ("--data", "--prompt")  # what a word without an option is likely to be

# Commands and options of other programs. Each has one sentence that names the equivalent, or says there is none.
_OTHER_COMMANDS = {
    "export convert save": "A checkpoint folder opens in Hugging Face transformers as it is.",
    "generate complete write inference infer": "Use gptlite sample --prompt TEXT.",
    "chat talk repl": "Use gptlite sample --interactive. The model continues your text; it is not trained to answer.",
    "finetune fine-tune": "Every run starts from random weights. gptlite train --resume RUN continues a run.",
    "serve server api": "From Python, gptlite.load(RUN).generate(PROMPT) writes text.",
    "resume continue": "Use gptlite train --resume RUN.",
    "evaluate score test benchmark": "Use gptlite eval.",
    "tokenize preprocess data": "Use gptlite prepare.",
    "sweep search tune": "Use gptlite train --sweep KEY=A,B.",
    "list ls compare": "Use gptlite runs.",
    "init configs": "gptlite config lists the shipped configs and prints one.",
}
_OTHER_TRAIN_OPTIONS = {
    "init-from from-pretrained pretrained finetune finetune-from": "Every run starts from random weights. --resume RUN "
    "continues a run.",
}


class _Checked:
    """Refuses what Typer would ignore, such as an option given twice."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments of the command, or before its name. Raises ConfigError with all mistakes in them."""
        check_arguments(self, ctx, args)
        rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return rest


class Command(_Checked, TyperCommand):
    """A command with checked arguments."""


class Commands(_Checked, TyperGroup):
    """A group of commands with checked arguments."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first argument names. Raises ConfigError."""
        if args[0] not in self.commands:
            near = difflib.get_close_matches(args[0], self.commands, n=1, cutoff=0.7)
            advice = f"Did you mean {near[0]}?" if near else f"See {ctx.command_path} --help."
            advice = advice_for(args[0], _OTHER_COMMANDS) or advice
            raise ConfigError(f"there is no command {args[0]}. {advice}", where=ctx.command_path)
        return super().resolve_command(ctx, args)


def advice_for(name: str, table: dict[str, str]) -> str | None:
    """The entry of a table whose key lists the name."""
    return next((advice for names, advice in table.items() if name in names.split()), None)


def usage_problem(error: TyperException, context: Any = None) -> Problem:
    """A mistake that Typer found, in the form of our own errors."""
    context = context or getattr(error, "ctx", None)
    where = "gptlite" if context is None else context.command_path
    message = error.format_message().strip().rstrip(".").replace("\n", " ")
    return Problem(f"{message[:1].lower()}{message[1:]}. See {where} --help.", where)


def check_arguments(command: TyperCommand | TyperGroup, ctx: Any, args: Sequence[str]) -> None:
    """Raise ConfigError with every mistake in the arguments of a command."""
    problems: list[Problem] = []
    left = list(args)
    known = [option for param in command.params if param.param_type_name == "option" for option in param.opts]
    while True:
        try:
            values, extra, order = command.make_parser(ctx).parse_args(list(left))
            break
        except TyperException as error:
            name = getattr(error, "option_name", None)
            if name is None or name in known:  # an option without its value, say
                raise ConfigError([*problems, usage_problem(error, ctx)]) from None
            problems.append(Problem(_unknown_option(ctx.command_path, name, left, known), ctx.command_path))
    if not problems and any(param.is_eager for param in order):  # --help, whatever else is given
        return
    given = Counter(param for param in order if param.param_type_name == "option")
    for param, times in given.items():
        try:
            param.handle_parse_result(ctx, values, [])
        except TyperException as error:
            problems.append(_bad_value(param, values[param.name], error, ctx))
        if times > 1 and not getattr(param, "multiple", False) and not getattr(param, "is_flag", False):
            sentence = f"this option takes one value and is given {times} times. Keep one of them."
            problems.append(Problem(sentence, option_name(param)))
    if extra and isinstance(command, TyperCommand):
        problems.append(Problem(_unexpected(ctx.command_path, extra, known), ctx.command_path))
    if problems:
        raise ConfigError(problems)


def _bad_value(param: Any, value: Any, error: TyperException, context: Any) -> Problem:
    """A value that Typer does not accept for an option."""
    annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    expected = {"int": "a whole number", "float": "a number"}.get(getattr(annotation, "__name__", ""))
    if typing.get_origin(annotation) is typing.Literal:
        expected = f"one of {', '.join(typing.get_args(annotation))}"
    if expected is None:
        return usage_problem(error, context)
    return Problem(f"{value} is not {expected}.", param.opts[0])


def _unexpected(where: str, words: Sequence[str], known: Collection[str]) -> str:
    """The sentence about words that belong to no option."""
    from gptlite.config.loading import SUFFIXES

    meant = next((option for option in _TEXT_OPTIONS if option in known), None)
    if "--config" in known and Path(words[0]).suffix in SUFFIXES:
        meant = "--config"
    advice = f"Did you mean {meant} {shlex.quote(words[0])}?" if meant else f"See {where} --help."
    if meant == "--data" and len(words) > 1:
        advice = "Put --data before each of them, or give one --data with a glob in quotes."
    shown = and_more([shlex.quote(word) for word in words], 3)
    return f"unexpected argument{'' if len(words) == 1 else 's'} {shown}. {advice}"


def _unknown_option(where: str, name: str, args: list[str], known: Collection[str]) -> str:
    """The sentence about an unknown option, which is removed from `args` with its value."""
    at = next((i for i, arg in enumerate(args) if arg.startswith(name)), None)
    if at is None:  # one letter among others, as in -qx
        at = next(i for i, arg in enumerate(args) if arg[:1] == "-" and arg[:2] != "--" and name[1:] in arg)
        args[at] = name
    typed, equals, value = args.pop(at).partition("=")
    if not equals and at < len(args) and (not args[at].startswith("-") or args[at][1:2].isdigit()):
        value = args.pop(at)
    command = where.rpartition(" ")[2]
    if command == "train":
        from gptlite.config.suggest import explain_key

        word = typed.lstrip("-").replace("_", "-")
        if (advice := advice_for(word, _OTHER_TRAIN_OPTIONS) or explain_key(word)) is not None:
            return f"there is no option {typed}. {advice}"
    meant = _meant(command, typed, value, [option for option in known if option != "--help"])
    advice = f"Did you mean {' or '.join(meant)}?" if meant else f"See {where} --help."
    return f"there is no option {typed}. {advice}"


def _meant(command: str, typed: str, value: str, known: Collection[str]) -> list[str]:
    """Return what an unknown option may stand for: one with a similar spelling, else a key of the config by any of its
    names (as an option or behind --set), else a less similar one."""
    from gptlite.config.suggest import suggest_key

    similar = difflib.get_close_matches(typed, known, n=1, cutoff=0.8)
    if similar or "--set" not in known:
        return similar or difflib.get_close_matches(typed, known, n=1)
    word = typed.lstrip("-").replace("-", "_")
    keys = [key for key in suggest_key(None, word) if settable(command, key)]
    own = [option for key in keys if (option := _option_of_key(key)) in known]
    # Another program's name for a key may be counted in another unit, so its value is not repeated.
    values = {key: shlex.quote(value) if value and key.endswith(f".{word}") else "VALUE" for key in keys}
    as_set = [f"--set {key}={values[key]}" for key in keys]
    return own or as_set or difflib.get_close_matches(typed, known, n=1, cutoff=0.7)


def _option_of_key(key: str) -> str:
    leaf = key.partition(".")[2].replace("_", "-")
    return "--data" if key == "data.source" else f"-{leaf}" if len(leaf) == 1 else f"--{leaf}"

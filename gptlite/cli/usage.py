"""Mistakes on the command line, all reported at once and before any option acts, with what was probably meant."""

from __future__ import annotations

import difflib
import shlex
import typing
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from gptlite.cli.options import option_name, settable
from gptlite.cli.terminal import on_one_line
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
_WEIGHTS = "Every run starts from random weights. --resume RUN continues a run."
_RUN = "Name the run without an option: gptlite {command} {value}."
_KEPT = "Leave it out: a run keeps its config. --set changes a key."
# By command. In place of a sentence: the option or the key that is meant. {value} is what was given.
_OTHER_OPTIONS: dict[str, dict[str, str]] = {
    "train": {
        "init-from from-pretrained pretrained finetune finetune-from": _WEIGHTS,
        "model model-name model-name-or-path": f"{_WEIGHTS} The keys of section model give its size.",
        "resume-from resume-from-checkpoint load checkpoint ckpt": "--resume",
        "run-name experiment exp-name n": "--name",
        "config-name config-file cfg": "--config",
        "text": "--data",
        "gpus devices n-gpu n-gpus num-gpus nproc-per-node num-processes ddp backend": "torchrun starts a process for "
        "each of N GPUs: torchrun --nproc-per-node N --no-python gptlite train.",
        "eval-only do-eval": "Use gptlite eval RUN. Training evaluates every eval.every updates.",
        "overwrite overwrite-output-dir force": "No run is overwritten. Choose another --name, or remove the run with "
        "gptlite runs rm RUN.",
    },
    "prepare": {
        "text": "--data",
        "out output out-dir output-dir": "data.dir",
        "split": "data.val_fraction",
        "lines": "Use data.documents=lines.",
        "threads workers num-workers num-proc": "It uses all cores. GPTLITE_THREADS=N in the environment limits them.",
    },
    "sample": {
        "start": "Use --prompt {value}; instead of FILE:NAME, use --prompt-file NAME.",
        "text input": "--prompt",
        "file f": "--prompt-file",
        "length N": "--max-new-tokens",
        "count": "-n",
        "logprobs top-logprobs": "Use --explain: it shows the five likeliest tokens at each step.",
        "c ctx-size n-ctx context-length max-seq-len": "--context",
        "ckpt": "--checkpoint",
        "output": "--out",
        "model m run out-dir model-path ckpt-path": _RUN,
        "init-from": "gptlite sample RUN takes a run of gptlite. No other weights are loaded.",
        "do-sample": "Leave it out: tokens are drawn unless the temperature is 0.",
        "chat instruct conversation": "Use --interactive. The model continues your text; it is not trained to answer.",
        "dtype precision fp16 compile": "Leave it out: a run is sampled as it was trained, without a compiler.",
        "config": _KEPT,
    },
    "eval": {
        "text input data dataset eval-file input-file": "--file",
        "ctx-size n-ctx context-length max-length block-size": "--context",
        "ckpt": "--checkpoint",
        "output": "--out",
        "config c": _KEPT,
        "model m run out-dir model-path": _RUN,
        "eval-iters limit split": "All of the validation text is scored, or a text that --file names.",
    },
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
    known = {option: param for param in command.params if param.param_type_name == "option" for option in param.opts}
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


def _unexpected(where: str, words: Sequence[str], known: Mapping[str, Any]) -> str:
    """The sentence about words that belong to no option."""
    from gptlite.config.loading import SUFFIXES

    key, equals, value = words[0].partition("=")
    named = _meant(where.rpartition(" ")[2], f"--{key}", known) if equals and "--set" in known else []
    meant = next((option for option in _TEXT_OPTIONS if option in known), None)
    if "--config" in known and Path(words[0]).suffix in SUFFIXES:
        meant = "--config"
    advice = f"Did you mean {meant} {_quoted(words[0])}?" if meant else f"See {where} --help."
    if named:
        advice = f"Did you mean {_with_value(named[0], value, known)}?"
    elif "--config" in known and Path(words[0]).suffix == ".py":
        advice = "A config is YAML: --config FILE.yaml (gptlite config lists those there are). A text needs --data."
    elif meant == "--data" and len(words) > 1:
        advice = "Put --data before each of them, or give one --data with a glob in quotes."
    shown = and_more([_quoted(word) for word in words], 3)
    return f"unexpected argument{'' if len(words) == 1 else 's'} {shown}. {advice}"


def _unknown_option(where: str, name: str, args: list[str], known: Mapping[str, Any]) -> str:
    """The sentence about an unknown option, which is removed from `args` with its value. known: options by name."""
    at = next((i for i, arg in enumerate(args) if arg.startswith(name)), None)
    if at is None:  # one letter among others, as in -qx
        at = next(i for i, arg in enumerate(args) if arg[:1] == "-" and arg[:2] != "--" and name[1:] in arg)
        args[at] = name
    typed, equals, value = args.pop(at).partition("=")
    if not equals and at < len(args) and (not args[at].startswith("-") or args[at][1:2].isdigit()):
        value = args.pop(at)
    from gptlite.config.suggest import explain_key

    command, name = where.rpartition(" ")[2], typed.replace("_", "-")
    word = name.lstrip("-")
    advice = advice_for(word, _OTHER_OPTIONS.get(command, {})) or (explain_key(word) if command == "train" else None)
    if advice is None and word.startswith("no-") and not value and f"--{word[3:]}" not in known:
        name, value = f"--{word[3:]}", "false"
    if advice is None or " " not in advice:
        meant = _meant(command, name, known) if advice is None else [advice]
        choice = " or ".join(_with_value(each, value, known) for each in meant)
        advice = f"Did you mean {choice}?" if meant else f"See {where} --help."
    advice = advice.replace("{command}", command).replace("{value}", _quoted(value) if value else "VALUE")
    return f"there is no option {typed}. {advice}"


def _meant(command: str, typed: str, known: Collection[str]) -> list[str]:
    """The options or keys that an unknown option may stand for: an option that it begins or that is spelled alike, else
    keys of the config by any of their names."""
    from gptlite.config.suggest import suggest_key

    options = [option for option in known if option != "--help"]
    begun = [option for option in options if len(typed) > 4 and option.startswith(typed)]
    similar = begun or difflib.get_close_matches(typed, options, n=1, cutoff=0.8)
    if similar or "--set" not in known:
        return similar
    keys = [key for key in suggest_key(None, typed.strip("-").replace("-", "_")) if settable(command, key)]
    own = [key for key in keys if key.startswith(f"{command}.")] or [key for key in keys if key[:7] != "sample."]
    return own or keys


def _with_value(meant: str, value: str, known: Mapping[str, Any]) -> str:
    """An option or a key with the value that was given to another one, as far as it takes it."""
    from gptlite.config.accepted import accepted_repairs, describe_accepted, is_accepted
    from gptlite.config.yaml import parse_scalar, write

    option = meant if meant.startswith("-") else _option_of_key(meant)
    if option in known:
        return f"{option} {_quoted(value)}" if value and not getattr(known[option], "is_flag", False) else option
    section, _, key = meant.partition(".")
    given = parse_scalar(value) if value else True
    if is_accepted(section, key, given):
        return f"--set {meant}={_quoted(value or 'true')}"
    repair = next(accepted_repairs(section, key, given), None) if value else None
    if repair is not None:
        return f"--set {meant}={_quoted(write(repair))}"
    return f"--set {meant}=VALUE ({describe_accepted(section, key)})"


def _quoted(word: str) -> str:
    """A word as a shell takes it, on one line."""
    return on_one_line(shlex.quote(word))


def _option_of_key(key: str) -> str:
    leaf = key.partition(".")[2].replace("_", "-")
    return "--data" if key == "data.source" else f"-{leaf}" if len(leaf) == 1 else f"--{leaf}"

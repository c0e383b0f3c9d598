"""Find what a run has: a checkpoint, its prepared text, and its tokenizer, which another run may use too.

A checkpoint is the latest, the best, that of a step or one in a folder. A scan of valid folders decides.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from gptlite.config.keys import is_accepted
from gptlite.config.loading import Override, load_config
from gptlite.config.schema import RunConfig, TokenizerSection
from gptlite.config.yaml import Value, shown
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.errors import ConfigError, Damaged, RunError, located
from gptlite.formatting import Say, counted, say_nothing
from gptlite.runs.checkpoint import Checkpoint, open_step, read_pointer, scan_checkpoints, step_folders
from gptlite.runs.run import CONFIG, Run, runs_folder
from gptlite.storage import files
from gptlite.storage.sealed import MANIFEST
from gptlite.tokenizers.base import is_foreign, load
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.folder import META_FILE

_KEY = "tokenizer.from"
# Check what is used of a checkpoint: without what only training needs, and for its tokenizer without the model.
_with_model: Callable[[Checkpoint], Checkpoint] = partial(Checkpoint.verified, skip=("optimizer.safetensors",))
_with_tokenizer: Callable[[Checkpoint], Checkpoint] = partial(
    Checkpoint.verified, skip=("model.safetensors", "optimizer.safetensors")
)

T = TypeVar("T")


def find_valid(
    folder: Path,
    which: str,
    say: Say,
    use: Callable[[Checkpoint], T] = Checkpoint.verified,  # type: ignore[assignment]
) -> T | None:
    """Return what `use` makes of the checkpoint of the highest step or of the best score; None if nothing was saved.

    which: "latest" or "best". use: raises Damaged for one that it cannot use, and then gets the next. A line to `say`
    tells that some are damaged, that the one in the pointer is lost, or that none was evaluated. Raise RunError when
    all are damaged.
    """
    damaged: list[Damaged] = []
    scanned = list(scan_checkpoints(folder))
    for checkpoint in scanned if which == "latest" else sorted(scanned, key=_rank):
        try:
            if isinstance(checkpoint, Damaged):
                raise checkpoint
            used = use(checkpoint)
        except Damaged as damage:
            if isinstance(checkpoint, Checkpoint) and not os.path.lexists(checkpoint.path):
                return find_valid(folder, which, say, use)  # pruned meanwhile by the training of this run
            damaged.append(damage)
            continue
        if reason := _why(folder, which, checkpoint, damaged):
            say(f"{folder}: using {reason}")
        return used
    if damaged:
        raise RunError(f"no checkpoint can be read. Train a new run. The first problem is {damaged[0]}", str(folder))
    return None


def _rank(found: Checkpoint | Damaged) -> tuple[float, int]:
    """Sort the lowest score first, of equals the earliest; without scores the newest. A damaged one may be the best."""
    if isinstance(found, Damaged):
        return -math.inf, 0
    return (math.inf, -found.step) if found.score is None else (found.score, found.step)


def _why(folder: Path, which: str, chosen: Checkpoint, damaged: Sequence[Damaged]) -> str | None:
    """Return what to say of a choice; None where it needs no explanation."""
    if damaged:
        return f"step {chosen.step}, since {counted(len(damaged), 'checkpoint')} cannot be read: {damaged[0]}"
    if which == "best" and chosen.score is None:
        return f"the newest checkpoint, step {chosen.step}, since none was evaluated."
    hint = read_pointer(folder, which)
    if hint is None or (folder / f"step-{hint:08d}").exists() or (which == "latest" and hint <= chosen.step):
        return None
    return f"step {chosen.step}, since the checkpoint of step {hint} is missing."


def find_checkpoint(
    folder: Path, which: str, say: Say, use: Callable[[Checkpoint], Checkpoint] = _with_model
) -> Checkpoint:
    """Return the checkpoint "best", "latest" or of a step, after checking what is used of it.

    Raise RunError when there is none.
    """
    if which in ("best", "latest"):
        if (chosen := find_valid(folder, which, say, use)) is not None:
            return chosen
        advice = "Train it further, or put them back."
        raise RunError(f"this run has no checkpoint yet, or they are gone. {advice}", str(folder))
    steps = {int(path.name[5:]): path for path in step_folders(folder)}
    if not (which.isascii() and which.isdigit() and int(which) in steps):
        saved = ", ".join(str(step) for step in sorted(steps)) or "none yet"
        raise RunError(f"there is no checkpoint {which[:40]}. Give best, latest or a saved step: {saved}.", str(folder))
    return use(open_step(steps[int(which)]))


def choose_checkpoint(root: Path, run: str, which: str | None, say: Say) -> Checkpoint:
    """Return a checkpoint of a run, which is a name under `root` or a folder; or the one whose own folder `run` is.

    which: best (None too), latest or a step. Raise RunError when there is none that is valid.
    """
    with files.storage_errors(Path(run), "read"):
        is_checkpoint = run != "" and (Path(run) / MANIFEST).is_file()
    if is_checkpoint:
        if which is not None:
            raise RunError(f"this is the folder of one checkpoint, so no other can be chosen. Leave out {which}.", run)
        return _with_model(Checkpoint.open(Path(run)))
    opened = Run.open(root, run)
    try:
        opened.check_config()
    except RunError as problem:  # the model is that of the checkpoint; only how it is sampled and scored may differ
        say(f"warning: {problem}")
    return find_checkpoint(opened.checkpoints, which or "best", say)


def find_run(checkpoint: Checkpoint) -> Run | None:
    """Return the run that contains a checkpoint; None for a checkpoint that was copied elsewhere."""
    folder = checkpoint.path.resolve().parent
    run = Run(folder.parent)
    return run if folder == run.checkpoints and run.started else None


def source_name(path: str | Path) -> str:
    """Return the name of a folder: of a checkpoint that of its run, in the hub's cache that of its repository."""
    parts = Path(path).resolve().parts
    return parts[-3] if parts[-2:-1] in (("checkpoints",), ("snapshots",)) else parts[-1]


def load_checkpoint_config(checkpoint: Checkpoint, overrides: Sequence[str | Override]) -> RunConfig:
    """Return the config of the run that contains a checkpoint, with overrides; else the default config.

    Device and threads are chosen again, since a model trained on a GPU may be used on a laptop. So is the precision of
    a bf16 or fp16 run: emulated, they are many times slower than fp32, and scores are equal to 3e-5 bits per byte.
    """
    run = find_run(checkpoint)
    path = run.path / CONFIG if run is not None else None
    keys = ["device", "attention", "threads"]
    if load_config(path).run.precision != "fp32":
        keys.append("precision")
    return load_config(path, [*(Override("saved", f"run.{key}", "auto") for key in keys), *overrides])


def find_text(run: Run, cfg: RunConfig) -> Prepared | None:
    """Return the prepared folder of a run; None if it is neither where it was nor in the current data.dir."""
    recorded = Path(run.info["prepared"])
    places = (recorded, cfg.data.folder / recorded.name, RunConfig().data.folder / recorded.name)
    return next((Prepared(place) for place in places if (place / MANIFEST).is_file()), None)


def with_tokenizer(cfg: RunConfig, say: Say = say_nothing) -> RunConfig:
    """Return the config with the folder that holds the tokenizer of `tokenizer.from`, and with its kind and size.

    Raise UserError if it cannot be found or read, or if kind or vocab_size are given and differ.
    """
    asked = cfg.tokenizer.from_
    if asked is None:
        return cfg
    with located(f"{_KEY}={asked}"), located(f"{_KEY}={asked}", at=f"run {asked}"):
        folder = _find_folder(asked, cfg)
        tokenizer = load(folder)
        found: dict[str, Value] = {"kind": tokenizer.kind, "from": str(folder.absolute())}
        if isinstance(tokenizer, BpeTokenizer) and tokenizer.kind == "bpe":
            found |= {"vocab_size": tokenizer.requested_vocab_size, "pattern": tokenizer.pattern_name}
        section = TokenizerSection.model_validate(found)
        check_given(cfg.tokenizer, section, asked)
    say(f"the tokenizer is that of {source_name(asked)}: {tokenizer.kind}, {tokenizer.vocab_size:,} ids")
    return cfg.model_copy(update={"tokenizer": section})


def check_given(asked: TokenizerSection, found: TokenizerSection, name: str) -> None:
    """Raise ConfigError for values that were given beside `tokenizer.from`, and are not those of its tokenizer."""
    values = {key: (asked.given().get(key), getattr(found, key)) for key in ("kind", "vocab_size", "pattern")}
    problems = [
        f"tokenizer.{key} is {given}, but in the tokenizer of {name} it is {shown(own)}. Leave it out."
        for key, (given, own) in values.items()
        if given not in (None, own)
    ]
    if problems:
        raise ConfigError(problems)


def _find_folder(name: str, cfg: RunConfig) -> Path:
    """Return the folder of tokenizer files of a name or path. Raise UserError if there is none.

    That of a run lies in its newest valid checkpoint.
    """
    path = Path(os.path.expanduser(name))
    if is_foreign(path):
        return path
    for place in (path, cfg.data.folder / path.name):  # data.dir may have been moved
        if os.path.isfile(place / META_FILE):
            if os.path.isfile(place / MANIFEST):
                _with_tokenizer(Checkpoint.open(place))
            return place
        if os.path.isfile(place / TOKENIZER_FOLDER / META_FILE):
            Prepared(place).tokenizer()
            return place / TOKENIZER_FOLDER
    root = runs_folder(cfg.run.dir)
    if is_accepted("tokenizer.kind", name) and not (root / name).exists():
        raise ConfigError(f"this is a kind of tokenizer, and no run. Use tokenizer.kind={name} instead.")
    return find_checkpoint(Run.open(root, name).checkpoints, "latest", say_nothing, _with_tokenizer).path

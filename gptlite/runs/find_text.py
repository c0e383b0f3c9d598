"""Find what a run has read: its prepared text, and its tokenizer, which another run may use too."""

from __future__ import annotations

import os
from pathlib import Path

from gptlite.config.keys import is_accepted
from gptlite.config.loading import parse_config
from gptlite.config.schema import RunConfig, TokenizerSection
from gptlite.config.yaml import Value, shown
from gptlite.data.dataset.prepared import TOKENIZER_FOLDER, Prepared
from gptlite.errors import ConfigError, DataError, RunError, located
from gptlite.formatting import Say, say_nothing
from gptlite.runs.checkpoint import Checkpoint
from gptlite.runs.find import find_valid
from gptlite.runs.run import CONFIG, Run, runs_folder
from gptlite.storage.sealed import MANIFEST
from gptlite.tokenizers.base import is_foreign, load
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.folder import META_FILE

_KEY = "tokenizer.from"


def find_text(run: Run, cfg: RunConfig) -> Prepared | None:
    """Return the prepared folder of a run; None if it is neither where it was nor in the current data.dir."""
    recorded = Path(run.info["prepared"])
    places = (recorded, cfg.data.folder / recorded.name, RunConfig().data.folder / recorded.name)
    return next((Prepared(place) for place in places if (place / MANIFEST).is_file()), None)


def with_tokenizer(cfg: RunConfig, say: Say = say_nothing) -> RunConfig:
    """Return the config with the folder that holds the tokenizer of `tokenizer.from`, and with its kind and size.

    Raise DataError if it cannot be found or read, ConfigError if kind or vocab_size are given and differ.
    """
    asked = cfg.tokenizer.from_
    if asked is None:
        return cfg
    with located(f"{_KEY}={asked}"), located(f"{_KEY}={asked}", at=f"run {asked}"):
        try:
            folder = _find_folder(asked, cfg)
            tokenizer = load(folder)
        except RunError as error:
            if is_accepted("tokenizer.kind", asked):
                raise ConfigError(
                    f"this is a kind of tokenizer, and no run. Use tokenizer.kind={asked} instead."
                ) from None
            raise DataError(error.problems) from error
        found: dict[str, Value] = {"kind": tokenizer.kind, "from": str(folder.absolute())}
        if isinstance(tokenizer, BpeTokenizer) and tokenizer.kind == "bpe":
            found |= {"vocab_size": tokenizer.requested_vocab_size, "pattern": tokenizer.pattern_name}
        section = TokenizerSection.model_validate(found)
        check_given(cfg.tokenizer, section, asked)
    say(f"the tokenizer is that of {asked}: {tokenizer.kind}, {tokenizer.vocab_size:,} ids")
    return cfg.model_copy(update={"tokenizer": section})


def check_given(asked: TokenizerSection, found: TokenizerSection, name: str) -> None:
    """Raise ConfigError for values that were given beside `tokenizer.from`, and are not those of its tokenizer."""
    problems = []
    for key in ("kind", "vocab_size", "pattern"):
        given, own = asked.given().get(key), getattr(found, key)
        if given is not None and given != own:
            problems.append(
                f"tokenizer.{key} is {given}, but in the tokenizer of {name} it is {shown(own)}. Leave it "
                f"out, or use tokenizer.{key}={shown(own)} or tokenizer.from=null."
            )
    if problems:
        raise ConfigError(problems)


def _find_folder(name: str, cfg: RunConfig) -> Path:
    """Return the folder of tokenizer files of a name or path. Raise RunError or DataError if there is none.

    That of a run lies beside its prepared ids, else in its newest valid checkpoint.
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
    run = Run.open(runs_folder(cfg.run.dir), name)
    prepared = find_text(run, parse_config(run.config_text(), str(run.path / CONFIG)))
    if prepared is not None and prepared.manifest.fingerprint == run.info["data"]:
        prepared.tokenizer()
        return prepared.path / TOKENIZER_FOLDER
    checkpoint = find_valid(run.checkpoints, "latest", say_nothing, _with_tokenizer)
    if checkpoint is None:
        raise DataError("its prepared text is gone, and it has no checkpoint, so its tokenizer is lost.", str(run.path))
    return checkpoint.path


def _with_tokenizer(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint after checking all but its tensors, which are read for the model alone."""
    return checkpoint.verified(skip=("model.safetensors", "optimizer.safetensors"))

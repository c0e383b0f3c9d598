"""The config that a command line asks for: a file, or sizes chosen for the text and the time, and changes to it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptlite.cli.options import build_overrides, find_config_file
from gptlite.compute.choice import Choice
from gptlite.config.loading import Override, load_config
from gptlite.config.rules import DROPOUT_PLACES
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import Value
from gptlite.data.preparing.fingerprint import clean_name, open_sources, plain_name
from gptlite.errors import located
from gptlite.formatting import Say, counted, say_nothing
from gptlite.loggers.metrics import Listener
from gptlite.planning.choose_sizes import CHOSEN, check_text, choose_sizes
from gptlite.planning.shapes import head_size
from gptlite.runs.find import source_name, with_tokenizer
from gptlite.runs.run import Run
from gptlite.training.launch import with_source
from gptlite.training.reconcile import saved_config

if TYPE_CHECKING:
    from gptlite.cli.train.options import TrainOptions

SPEED, MINUTES, CHOSEN_MINUTES = "speed_class", "minutes", "chosen_minutes"  # in run.json
LENGTH = "train.max_minutes"
ASCII = bytes(range(32, 127)).decode()  # for a text that is not there yet
SAMPLED_BYTES = 500_000  # about as many are read to count characters
DEFAULT_MINUTES = 3.0  # for a text of the user's own, where nothing else is said


@dataclass(frozen=True)
class Configs:
    """Loads what a command line asks for, for a sweep once for each run, and chooses sizes where they are not given."""

    path: Path | None  # None where sizes are chosen for the text and no file is given
    overrides: Sequence[str | Override]
    minutes: float | None  # of --minutes
    speed: Choice | None = None  # GFLOP/s that sizes are chosen for; None before it is known, and where none are chosen
    init: str | None = None  # of --init

    @classmethod
    def of(cls, options: TrainOptions) -> Configs:
        """Return what the options ask for. Sizes are chosen with --minutes, and for a text without --config."""
        overrides = build_overrides(options.set_, options.data)
        if options.minutes is not None:
            overrides.insert(0, Override("--minutes", LENGTH, options.minutes))
        if options.init is not None:
            own_tokenizer = any(key.startswith("tokenizer.") for key in options.keys_set)
            keys = ("train.from",) if own_tokenizer else ("train.from", "tokenizer.from")
            overrides[:0] = [Override("--init", key, options.init) for key in keys]
        chooses = options.minutes is not None or "data.source" in options.keys_set
        path = None if chooses and options.config is None else find_config_file(options.config)
        return cls(path, overrides, options.minutes, init=options.init)

    @property
    def chooses(self) -> bool:
        """Whether sizes are chosen for the text."""
        return self.path is None or self.minutes is not None

    def asked(self, more: Sequence[str | Override] = (), say: Say = say_nothing) -> RunConfig:
        """Load the config without what is chosen. Raises ConfigError with every problem."""
        with located("--set"):
            cfg = load_config(self.path, [*self.overrides, *more])
        with located(f"--init {self.init}", at=f"train.from={self.init}"):
            return with_source(cfg, say)

    def load(self, more: Sequence[str | Override] = ()) -> RunConfig:
        """Load the config with further overrides, and choose sizes. Raises as `asked`."""
        return self.with_sizes(self.asked(more))

    def timed(self, asked: RunConfig, existing: Sequence[Run] = ()) -> Configs:
        """Return the same for the speed of this machine, or that for which existing runs were started, if sizes are
        chosen."""
        if not self.chooses:
            return self
        with self.naming_option(self.minutes_for(asked)):
            check_text(count_bytes(asked))  # before torch is loaded
        from gptlite.training.throughput import find_speed

        recorded = ((run.info.get(SPEED), run.name) for run in existing if run.started)
        known = next((Choice(speed, f"as for {name}") for speed, name in recorded if isinstance(speed, int)), None)
        return dataclasses.replace(self, speed=known or find_speed(asked.run))

    def minutes_for(self, asked: RunConfig) -> float:
        """Return the minutes that sizes are chosen for."""
        return self.minutes or asked.train.max_minutes or DEFAULT_MINUTES

    def with_sizes(self, asked: RunConfig) -> RunConfig:
        """Return a config with the sizes that it does not give, if they are chosen."""
        if self.speed is None:
            return asked
        minutes = self.minutes_for(asked)
        text_bytes, speed, train = count_bytes(asked), self.speed.value, asked.train
        sample = sample_text(asked) or ASCII
        kind, vocab_size = given_kind(asked.given()), None
        if asked.tokenizer.from_ is not None:
            tokenizer = with_tokenizer(asked).tokenizer
            kind, vocab_size = tokenizer.kind, tokenizer.vocab_size
        with self.naming_option(minutes):
            sizes = choose_sizes(
                text_bytes,
                minutes,
                speed,
                bytes_per_character=len(sample.encode()) / len(sample),
                characters=len(set(sample)),
                kind=kind,
                vocab_size=vocab_size,
                begins_with=None if train.from_ is None else asked.model,
                max_steps=train.max_steps,
                epochs=train.epochs,
            )
        return self._fitted(asked, sizes)

    def with_sizes_of(self, run: Run, asked: RunConfig) -> RunConfig:
        """Return the config to continue a run with: sizes that were chosen stay as they were."""
        if not self.chooses:
            return asked
        saved, lengths = saved_config(run).given(), ("train.max_steps", "train.epochs", LENGTH)
        sizes = {key: saved[key] for key in CHOSEN if key in saved and key != LENGTH}
        if self.minutes is not None:
            same = run.info.get(MINUTES) == self.minutes  # then it may have been chosen to end earlier
            sizes[LENGTH] = saved[LENGTH] if same else self.minutes
        elif not asked.given().keys() & lengths:
            sizes |= {key: saved.get(key) for key in lengths}
        return self._fitted(asked, sizes)

    def _fitted(self, asked: RunConfig, sizes: Mapping[str, Value]) -> RunConfig:
        given = asked.given()
        is_set = any(each.partition("=")[0].strip() == LENGTH for each in self.overrides if isinstance(each, str))
        if self.minutes is not None and given[LENGTH] == self.minutes and not is_set:
            del given[LENGTH]  # the text may end the training sooner
        return asked.with_values(fit_to(sizes, given))

    def naming_option(self, minutes: float) -> AbstractContextManager[None]:
        """Let errors of the choice name the option that asks for it."""
        return located("--data" if self.minutes is None else f"--minutes {minutes:g}")

    def facts(self, asked: RunConfig, cfg: RunConfig) -> Mapping[str, Any]:
        """Return what run.json records of the choice that led from one config to the other."""
        if self.speed is None:
            return {}
        chosen = cfg.train.max_minutes
        clock = {} if chosen is None else {MINUTES: self.minutes_for(asked), CHOSEN_MINUTES: chosen}
        return {SPEED: self.speed.value, "chosen": [key for key in CHOSEN if key not in asked.given()], **clock}

    def base(self, cfg: RunConfig) -> str:
        """Return the name of a run without --name: as its config or, without one, as its text."""
        if self.path is not None:
            return self.path.stem
        return clean_name(plain_name(open_sources(cfg.data)[0])) or "minutes"

    def announce(self, asked: RunConfig, cfg: RunConfig, listener: Listener) -> None:
        """Say where the config comes from, and which sizes were chosen."""
        if self.path is not None:
            listener.say(f"config: {self.path}")
        if self.speed is None:
            return
        minutes, length = self.minutes_for(asked), cfg.train.max_minutes
        listener.detail(f"speed: about {self.speed.value} GFLOP/s ({self.speed.reason})")
        how = " (--minutes M for another time, --config for other sizes)" if self.minutes is None else ""
        start = "sizes as for" if length is None else "for"
        listener.say(f"{start} {minutes:g} min{how}: {describe_sizes(cfg)}")
        if length is not None and length < minutes:
            listener.say(
                f"training ends after {length:g} min of {minutes:g}: after that it would mostly learn so short a text "
                f"by heart. Give more text, or --set {LENGTH}={minutes:g} to train on."
            )


def count_bytes(cfg: RunConfig) -> int:
    """Count the bytes of the text, without that of data.val_source."""
    return sum(each.count_bytes() for each in open_sources(cfg.data) if not each.is_for_validation)


def sample_text(cfg: RunConfig) -> str:
    """Return the beginning of the text, "" of one that is not fetched yet. DataError where it cannot be read."""
    read = bytearray()
    there = (source for source in open_sources(cfg.data) if source.card is None or source.files[0].exists())
    documents = (document for source in there for document in source.documents())
    for piece in itertools.chain.from_iterable(document.pieces for document in documents):
        read += piece
        if len(read) >= SAMPLED_BYTES:
            break
    return read.decode()


def describe_sizes(cfg: RunConfig) -> str:
    """Return the sizes of a config on one line."""
    model, train = cfg.model, cfg.train
    tokens = f"BPE of {cfg.tokenizer.bpe_vocab_size:,} ids" if cfg.tokenizer.kind == "bpe" else cfg.tokenizer.kind
    if cfg.tokenizer.from_ is not None:
        tokens = f"tokenizer of {source_name(cfg.tokenizer.from_)}"
    taught = f", an n-gram teacher with a weight of {train.ngram_teacher:g}" if train.ngram_teacher else ""
    return (
        f"{tokens}, {counted(model.n_layer, 'layer')} of width {model.n_embd}, context {model.block_size}, dropout "
        f"{model.dropout:g}, {counted(train.batch_size, 'sequence')} per update{taught}"
    )


def given_kind(given: Mapping[str, Value]) -> str | None:
    """Return the kind of tokenizer if it was given, also by a key that only bpe has."""
    if "tokenizer.kind" in given:
        return str(given["tokenizer.kind"])
    of_bpe = ("tokenizer.vocab_size", "tokenizer.pattern")
    return "bpe" if any(given.get(key) is not None for key in of_bpe) else None


def fit_to(sizes: Mapping[str, Any], given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the sizes without what was given, and those that depend on it made to agree with it."""
    by_count = given.get("train.max_steps") or given.get("train.epochs") or given.get("train.max_minutes", 1) is None
    has_tokenizer = given.get("tokenizer.from") is not None
    settled = {  # by what was given, as the rules between keys have it
        ("train.max_minutes", "eval.every", "save.every"): by_count,  # they follow from the clock
        ("data.val_max_bytes",): given.get("data.val_source") is not None,  # all of it is used
        ("tokenizer.kind",): has_tokenizer or given_kind(given) is not None,
        ("tokenizer.vocab_size",): has_tokenizer or given.get("tokenizer.kind", "bpe") != "bpe",
        ("model.dropout",): all(given.get(f"model.{place}") is not None for place in DROPOUT_PLACES),
    }
    without = {*given, *(key for keys, is_settled in settled.items() if is_settled for key in keys)}
    fitted = {key: value for key, value in sizes.items() if key not in without}
    width, heads, micro = (given.get(key) for key in ("model.n_embd", "model.n_head", "train.micro_batch_size"))
    if isinstance(width, int) and heads is None:
        fitted["model.n_head"] = max(n for n in range(1, max(1, width // head_size(width)) + 1) if width % n == 0)
    if isinstance(heads, int) and width is None:
        fitted["model.n_embd"] = heads * math.ceil(sizes["model.n_embd"] / heads)
    if isinstance(micro, int) and "train.batch_size" in fitted:
        fitted["train.batch_size"] = micro * math.ceil(sizes["train.batch_size"] / micro)
    return fitted

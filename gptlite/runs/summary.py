"""Summaries of runs, fast enough for hundreds: without torch or the schema, and without parsing every line of a log."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from gptlite.compute.choice import GIVEN
from gptlite.config.yaml import DEFAULT_BPE_VOCAB_SIZE, DEFAULT_MAX_STEPS, Value, YamlError, saved_values
from gptlite.errors import RunError, UserError
from gptlite.formatting import counted
from gptlite.loggers.metrics import METRICS, SAMPLES, parse_line, read_content
from gptlite.runs.checkpoint import step_folders
from gptlite.runs.run import CONFIG, Run
from gptlite.storage import files

State = Literal["running", "finished", "stopped", "diverged"]
T = TypeVar("T")

NEWEST = 10  # lines of metrics.jsonl
EVALUATION = b'"split": "val"'
TIMES = "tokens_per_second", "elapsed"


@dataclass(frozen=True)
class Evaluation:
    """A validation score, and the updates and seconds of training before it. old_score: of the text of train.from."""

    step: int
    seconds: float | None
    bits_per_byte: float
    loss: float | None = None  # nats per token
    old_score: float | None = None  # bits per byte


@dataclass(frozen=True)
class Summary:
    """A run as its files describe it; None where they do not."""

    run: Run
    name: str
    state: State
    config: Mapping[str, Value]  # by section.key
    started_at: float
    text: str | None  # fingerprint of the prepared data
    ppmd: float | None  # bits per byte of its validation text
    chosen: frozenset[str]  # keys whose values rules chose
    parameters: int | None
    step: int
    best_bits_per_byte: float | None
    best_step: int | None
    tokens_per_second: float | None  # median of the newest log lines
    elapsed: float | None  # seconds of training, over all sessions

    @property
    def steps(self) -> int | None:
        """Planned updates; None under max_minutes, or epochs that were written into config.yaml by hand."""
        steps = self.config.get("train.max_steps")
        if isinstance(steps, int):
            return steps
        others = (self.config.get("train.epochs"), self.config.get("train.max_minutes"))
        return DEFAULT_MAX_STEPS if others == (None, None) else None

    @property
    def sees_ahead(self) -> bool:
        """Whether the model reads the tokens that it is scored on, so that its score is no prediction."""
        return self.config.get("model.variant") == "no_mask"

    @property
    def tokens(self) -> int | None:
        """Tokens trained on so far."""
        rows, length = self.config.get("train.batch_size"), self.config.get("model.block_size")
        return self.step * rows * length if isinstance(rows, int) and isinstance(length, int) else None

    @property
    def tokenizer(self) -> str:
        """The kind, and for bpe the vocabulary size."""
        kind, size = self.config.get("tokenizer.kind"), self.config.get("tokenizer.vocab_size")
        return f"bpe {size or DEFAULT_BPE_VOCAB_SIZE}" if kind == "bpe" else str(kind or "")


def read_runs(folder: Path) -> tuple[list[Summary], list[str]]:
    """Return all runs in a folder, oldest start first, and a line for each thing that cannot be read.

    Raise RunError where there is no such folder.
    """
    with files.storage_errors(folder, "read"):
        if not folder.is_dir():
            raise RunError("there is no such folder. Train a run, or check the path.", str(folder))
        named = (path for path in folder.iterdir() if path.name[0] != "." and files.TEMP_MARK not in path.name)
        paths = sorted(path for path in named if path.is_dir())
    problems: list[str] = []
    runs = []
    for path in paths:
        if read := _noting(problems, partial(read_run, Run(path))):
            runs.append(read[0])
            problems += read[1]
    return sorted(runs, key=lambda summary: (summary.started_at, summary.name)), problems


def read_run(run: Run) -> tuple[Summary, list[str]]:
    """Return a run's summary, and a line for each damaged file. Raise RunError where the folder is not a run."""
    with files.storage_errors(run.path, "read"):
        if not run.started:
            raise RunError(f"skipped, since it has no {CONFIG}: not a run, or killed at its start.", str(run.path))
        is_diverged: State = "diverged" if run.diverged else "stopped"
        state: State = "running" if run.locked else "finished" if run.finished else is_diverged
    try:
        config = saved_values(run.config_text())
    except YamlError as error:
        raise RunError(f"skipped: {error.sentence}", f"{run.path / CONFIG}:{error.line}") from error
    problems: list[str] = []
    info = _noting(problems, lambda: run.info) or {}
    end = (_noting(problems, lambda: run.end) if state == "finished" else None) or {}
    lines = _noting(problems, lambda: _log_lines(run, problems)) or []
    newest = [] if state == "finished" else step_folders(run.checkpoints)[:1]  # saved after the last line of the log
    saved = [int(path.name.removeprefix("step-")) for path in newest]
    best = min(((each.bits_per_byte, each.step) for each in _evaluations(lines)), default=(None, None))
    speeds, times = ([x for x in (_number(line["time"], name) for line in lines) if x is not None] for name in TIMES)
    summary = Summary(
        run=run,
        name=run.name,
        state=state,
        config=config,
        started_at=run.started_at,
        text=info.get("data"),
        ppmd=info.get("ppmd"),
        chosen=frozenset(
            [key for key, why in info.get("reasons", {}).items() if why["reason"] != GIVEN] + info.get("chosen", [])
        ),
        parameters=info.get("parameters"),
        step=max([end.get("step", 0), *(line["step"] for line in lines), *saved]),
        best_bits_per_byte=end.get("best_bits_per_byte", best[0]),
        best_step=end.get("best_step", best[1]),
        tokens_per_second=statistics.median(speeds) if speeds else None,
        elapsed=times[-1] if times else None,
    )
    return summary, problems


def read_log(run: Run) -> list[dict[str, Any]]:
    """Return the objects in all whole lines of metrics.jsonl."""
    return [fields for line in _read_lines(run.path / METRICS) if (fields := parse_line(line)) is not None]


def read_curve(summary: Summary) -> list[Evaluation]:
    """Return every evaluation of a run, by step."""
    return sorted(_evaluations(_log_lines(summary.run, [])), key=lambda evaluation: evaluation.step)


def read_samples(run: Run) -> list[tuple[int, str]]:
    """Return the step and the text of every sample, in the order in which they were written."""
    lines = [parse_line(line) for line in _read_lines(run.path / SAMPLES)]
    return [(fields["step"], fields["text"]) for fields in lines if fields and isinstance(fields.get("text"), str)]


def _noting(problems: list[str], read: Callable[[], T]) -> T | None:
    """Return what `read` returns; None where it raises an error, whose problems are noted."""
    try:
        return read()
    except UserError as error:
        problems += map(str, error.problems)
        return None


def _evaluations(lines: Sequence[Mapping[str, Any]]) -> list[Evaluation]:
    return [
        Evaluation(
            line["step"],
            _number(line["time"], "elapsed"),
            score,
            _number(line, "loss"),
            _number(line, "old_bits_per_byte"),
        )
        for line in lines
        if line.get("split") == "val" and (score := _number(line, "bits_per_byte")) is not None
    ]


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _log_lines(run: Run, problems: list[str]) -> list[dict[str, Any]]:
    """Return every evaluation and the newest lines of metrics.jsonl, each with a `time`."""
    path = run.path / METRICS
    lines = _read_lines(path)
    wanted = [line for line in lines[:-NEWEST] if EVALUATION in line] + lines[-NEWEST:]
    parsed = [fields for line in wanted if (fields := parse_line(line)) is not None]
    if len(parsed) < len(wanted):
        problems.append(f"{path}: skipped {counted(len(wanted) - len(parsed), 'damaged line')}.")
    return [{**fields, "time": time if isinstance(time := fields.get("time"), dict) else {}} for fields in parsed]


def _read_lines(path: Path) -> list[bytes]:
    """Return the lines of a log. Text after the last newline is still being written, or its writer was killed."""
    return read_content(path).split(b"\n")[:-1]

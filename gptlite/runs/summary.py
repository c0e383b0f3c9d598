"""Summaries of runs, fast enough for hundreds: without torch or the schema, and from the ends of long files."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gptlite.config.saved import DEFAULT_BPE_VOCAB_SIZE, DEFAULT_MAX_STEPS, saved_values
from gptlite.config.yaml import Value, YamlError
from gptlite.errors import RunError, UserError
from gptlite.formatting import counted
from gptlite.runs.run import CONFIG, Run
from gptlite.storage import files
from gptlite.storage.sealed_json import read_sealed

State = Literal["running", "finished", "stopped", "diverged"]

TAIL_BYTES = 8192  # of metrics.jsonl
TAIL_LINES = 10
EVALUATION = b'"split": "val"'


@dataclass(frozen=True)
class Evaluation:
    """A validation score, and the updates, tokens and seconds of training before it."""

    step: int
    tokens: int | None
    seconds: float | None
    bits_per_byte: float
    loss: float | None = None  # nats per token


@dataclass(frozen=True)
class Summary:
    """A run as its files describe it; None where they do not."""

    run: Run
    name: str
    state: State
    config: Mapping[str, Value]  # by section.key
    started_at: float
    text: str | None  # fingerprint of the prepared data
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
        return count_tokens(self.config, self.step)

    @property
    def tokenizer(self) -> str:
        """The kind, and for bpe the vocabulary size."""
        kind, size = self.config.get("tokenizer.kind"), self.config.get("tokenizer.vocab_size")
        return f"bpe {size or DEFAULT_BPE_VOCAB_SIZE}" if kind == "bpe" else str(kind or "")


def read_runs(folder: Path) -> tuple[list[Summary], list[str]]:
    """Return all runs in a folder, oldest start first, and a line for each thing that cannot be read.

    Raise RunError where there is no such folder, or where it is a run itself and contains none.
    """
    with files.storage_errors(folder, "read"):
        if not folder.is_dir():
            raise RunError("there is no such folder. Train a run, or check the path.", str(folder))
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    found: list[Summary] = []
    problems: list[str] = []
    for path in paths:
        with _collected(problems):
            summary, damage = read_run(Run(path))
            found.append(summary)
            problems += damage
    if not found and Run(folder).started:
        parent = folder.absolute().parent
        raise RunError(f"this is a run, not a folder of runs. Did you mean {parent}?", str(folder))
    return sorted(found, key=lambda each: (each.started_at, each.name)), problems


def read_run(run: Run) -> tuple[Summary, list[str]]:
    """Return a run's summary, and a line for each damaged file. Raise RunError where the folder is not a run."""
    if files.TEMP_MARK in run.path.name:
        raise RunError("left over from a removal that was killed. Remove this folder.", str(run.path))
    with files.storage_errors(run.path, "read"):
        if not run.started:
            raise RunError(f"skipped, since it has no {CONFIG}: not a run, or killed at its start.", str(run.path))
        state = _state_of(run)
    try:
        config = saved_values(run.config_text())
    except YamlError as error:
        raise RunError(f"skipped: {error.sentence}", f"{run.path / CONFIG}:{error.line}") from error
    problems: list[str] = []
    info: Mapping[str, Any] = {}
    end: Mapping[str, Any] = {}
    lines: Sequence[Mapping[str, Any]] = ()
    with _collected(problems):
        info = run.info
    with _collected(problems):
        end = read_sealed(run.path / "finished.json") if state == "finished" else {}
    with _collected(problems):
        lines = _log_lines(run.path / "metrics.jsonl", problems, whole=not end)
    best: tuple[float | None, int | None] = _number(end, "best_bits_per_byte"), _count(end, "best_step")
    if not end:
        scores = ((each.bits_per_byte, each.step) for each in _evaluations(lines, config))
        best = min(scores, default=best)
    speeds = [speed for line in lines if (speed := _number(_time(line), "tokens_per_second")) is not None]
    times = [seconds for line in lines if (seconds := _number(_time(line), "elapsed")) is not None]
    summary = Summary(
        run=run,
        name=run.name,
        state=state,
        config=config,
        started_at=run.started_at,
        text=info["data"] if isinstance(info.get("data"), str) else None,
        parameters=_count(info, "parameters"),
        step=max((line["step"] for line in lines), default=_count(end, "step") or 0),
        best_bits_per_byte=best[0],
        best_step=best[1],
        tokens_per_second=statistics.median(speeds) if speeds else None,
        elapsed=times[-1] if times else None,
    )
    return summary, problems


def read_curve(summary: Summary) -> list[Evaluation]:
    """Return every evaluation of a run, by step."""
    lines = _log_lines(summary.run.path / "metrics.jsonl", [], whole=True)
    return sorted(_evaluations(lines, summary.config), key=lambda each: each.step)


def read_samples(run: Run) -> list[tuple[int, str]]:
    """Return the step and the text of every sample, in the order in which they were written."""
    path = run.path / "samples.jsonl"
    with files.storage_errors(path, "read"):
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    samples = [line for line in map(_parse, lines) if line is not None and isinstance(line.get("text"), str)]
    return [(line["step"], line["text"]) for line in samples]


def count_tokens(config: Mapping[str, Value], step: int) -> int | None:
    """Return the tokens that `step` updates train on."""
    rows, length = config.get("train.batch_size"), config.get("model.block_size")
    return step * rows * length if isinstance(rows, int) and isinstance(length, int) else None


@contextmanager
def _collected(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        problems += map(str, error.problems)


def _state_of(run: Run) -> State:
    if run.locked:
        return "running"
    return "finished" if run.finished else "diverged" if run.diverged else "stopped"


def _log_lines(path: Path, problems: list[str], *, whole: bool) -> list[Mapping[str, Any]]:
    """Return the newest lines of metrics.jsonl, and with `whole` every earlier evaluation."""
    with files.storage_errors(path, "read"):
        if not path.exists():
            return []
        with path.open("rb") as file:
            skipped = 0 if whole else max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(skipped)
            # Text after the last newline is still being written, or its writer was killed.
            lines = file.read().split(b"\n")[:-1]
    if skipped:
        lines = lines[1:]
        if not any(EVALUATION not in line for line in lines):  # long lines: log.grad_norms of a very deep model
            return _log_lines(path, problems, whole=True)
    wanted = [line for line in lines[:-TAIL_LINES] if EVALUATION in line] + lines[-TAIL_LINES:]
    parsed = [fields for line in wanted if (fields := _parse(line)) is not None]
    if len(parsed) < len(wanted):
        problems.append(f"{path}: skipped {counted(len(wanted) - len(parsed), 'damaged line')}.")
    return parsed


def _parse(line: bytes) -> Mapping[str, Any] | None:
    """Return the object in a line; None where it is damaged or has no step."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and _count(fields, "step") is not None else None


def _evaluations(lines: Sequence[Mapping[str, Any]], config: Mapping[str, Value]) -> Iterator[Evaluation]:
    for line in lines:
        score = _number(line, "bits_per_byte")
        if line.get("split") == "val" and score is not None:
            tokens, seconds = count_tokens(config, line["step"]), _number(_time(line), "elapsed")
            yield Evaluation(line["step"], tokens, seconds, score, _number(line, "loss"))


def _time(line: Mapping[str, Any]) -> Mapping[str, Any]:
    time = line.get("time")
    return time if isinstance(time, dict) else {}


def _count(fields: Mapping[str, Any], key: str) -> int | None:
    value = fields.get(key)
    return value if type(value) is int else None


def _number(fields: Mapping[str, Any], key: str) -> float | None:
    value = fields.get(key)
    return value if isinstance(value, int | float) and math.isfinite(value) else None

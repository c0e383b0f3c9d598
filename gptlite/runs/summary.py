"""What the files of runs say, read fast enough for a list of hundreds: no torch, no schema, the ends of long files."""

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

from gptlite import files
from gptlite.config.saved import DEFAULT_BPE_VOCAB_SIZE, DEFAULT_MAX_STEPS, saved_values
from gptlite.config.yaml import Value, YamlError
from gptlite.errors import RunError, UserError
from gptlite.json_files import read_record
from gptlite.runs.run import CONFIG, Run

State = Literal["running", "finished", "stopped", "diverged"]

TAIL = 8192  # bytes at the end of metrics.jsonl
NEWEST = 10  # lines
EVALUATION = b'"split": "val"'


@dataclass(frozen=True)
class Evaluation:
    """Bits per byte of the validation text after so many updates, tokens and seconds of training."""

    step: int
    tokens: int | None
    seconds: float | None
    bits_per_byte: float
    loss: float | None = None  # nats per token


@dataclass(frozen=True)
class Summary:
    """What the files of a run say; None where they do not say it."""

    run: Run
    name: str
    state: State
    config: Mapping[str, Value]  # every key as section.key
    started_at: float
    text: str | None  # the fingerprint of what it is trained on
    parameters: int | None
    step: int
    best_bits_per_byte: float | None
    best_step: int | None
    tokens_per_second: float | None  # the median of the newest log lines
    elapsed: float | None  # seconds of training, over all sittings

    @property
    def steps(self) -> int | None:
        """Updates that the run is to have; None where the clock decides."""
        return steps_of(self.config)

    @property
    def tokens(self) -> int | None:
        """Trained on so far."""
        return tokens_at(self.config, self.step)

    @property
    def tokenizer(self) -> str:
        """Its kind, and its size where that is chosen."""
        kind, size = self.config.get("tokenizer.kind"), self.config.get("tokenizer.vocab_size")
        return f"bpe {size or DEFAULT_BPE_VOCAB_SIZE}" if kind == "bpe" else str(kind or "")


def read_runs(folder: Path) -> tuple[list[Summary], list[str]]:
    """All runs in a folder, oldest start first, and a line for everything that cannot be read.

    RunError where there is no such folder, or where it is itself a run and holds none.
    """
    with files.storage_errors(folder, "read"):
        if not folder.is_dir():
            raise RunError(f"{folder}: folder = missing: the folder of runs; train one, or check the path")
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.is_dir())
    found: list[Summary] = []
    problems: list[str] = []
    for path in paths:
        with _noted(problems):
            summary, gaps = read_run(Run(path))
            found.append(summary)
            problems += gaps
    if not found and Run(folder).started:
        raise RunError(f"{folder}: folder = a run: the folder of several; did you mean {folder.absolute().parent}?")
    return sorted(found, key=lambda each: (each.started_at, each.name)), problems


def read_run(run: Run) -> tuple[Summary, list[str]]:
    """What the files of a run say, and a line for each that is damaged. An error where it is no run at all."""
    if files.TEMP_MARK in run.path.name:
        raise RunError(f"{run.path}: name = unfinished: what was left when a removal was killed; remove the folder")
    with files.storage_errors(run.path, "read"):
        if not run.started:
            raise RunError(f"{run.path}: run = no {CONFIG} in it: not a run, or killed before it began; left out")
        state = _state_of(run)
    try:
        config = saved_values(run.config_text())
    except YamlError as error:
        raise RunError(f"{error.sentence} This run is left out.", where=f"{run.path / CONFIG}:{error.line}") from error
    problems: list[str] = []
    info: Mapping[str, Any] = {}
    end: Mapping[str, Any] = {}
    lines: Sequence[Mapping[str, Any]] = ()
    with _noted(problems):
        info = run.info
    with _noted(problems):
        end = read_record(run.path / "finished.json") if state == "finished" else {}
    with _noted(problems):
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
    """Every evaluation of a run, in the order of steps."""
    lines = _log_lines(summary.run.path / "metrics.jsonl", [], whole=True)
    return sorted(_evaluations(lines, summary.config), key=lambda each: each.step)


def last_sample(run: Run) -> tuple[int, str] | None:
    """The newest line of samples.jsonl: the step, and what the model wrote. None where there is none."""
    path = run.path / "samples.jsonl"
    with files.storage_errors(path, "read"):
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    samples = [line for line in map(_parse, lines) if line is not None and isinstance(line.get("text"), str)]
    return (samples[-1]["step"], samples[-1]["text"]) if samples else None


def steps_of(config: Mapping[str, Value]) -> int | None:
    """Updates that a run is to have; None where the clock decides."""
    steps = config.get("train.max_steps")
    if isinstance(steps, int):
        return steps
    return DEFAULT_MAX_STEPS if config.get("train.max_minutes") is None else None


def tokens_at(config: Mapping[str, Value], step: int) -> int | None:
    """Tokens that a run is trained on after so many updates."""
    rows, length = config.get("train.batch_size"), config.get("model.block_size")
    return step * rows * length if isinstance(rows, int) and isinstance(length, int) else None


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        problems += map(str, error.problems)


def _state_of(run: Run) -> State:
    if run.locked:
        return "running"
    return "finished" if run.finished else "diverged" if run.diverged else "stopped"


def _log_lines(path: Path, problems: list[str], *, whole: bool) -> list[Mapping[str, Any]]:
    """The newest lines of metrics.jsonl, and with `whole` every evaluation before them; none where there is no file."""
    with files.storage_errors(path, "read"):
        if not path.exists():
            return []
        with path.open("rb") as file:
            skipped = 0 if whole else max(0, os.fstat(file.fileno()).st_size - TAIL)
            file.seek(skipped)
            # What follows the last newline is being written, or its writer was killed.
            lines = file.read().split(b"\n")[:-1]
    if skipped:
        lines = lines[1:]
        if not any(EVALUATION not in line for line in lines):  # of very deep models with log.grad_norms
            return _log_lines(path, problems, whole=True)
    wanted = [line for line in lines[:-NEWEST] if EVALUATION in line] + lines[-NEWEST:]
    parsed = [fields for line in wanted if (fields := _parse(line)) is not None]
    if len(parsed) < len(wanted):
        problems.append(f"{path}: damaged lines = {len(wanted) - len(parsed)}: left out")
    return parsed


def _parse(line: bytes) -> Mapping[str, Any] | None:
    """A line as an object that tells its step; None where it is damaged."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and _count(fields, "step") is not None else None


def _evaluations(lines: Sequence[Mapping[str, Any]], config: Mapping[str, Value]) -> Iterator[Evaluation]:
    for line in lines:
        score = _number(line, "bits_per_byte")
        if line.get("split") == "val" and score is not None:
            tokens, seconds = tokens_at(config, line["step"]), _number(_time(line), "elapsed")
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

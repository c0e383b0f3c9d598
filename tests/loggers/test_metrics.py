"""The metric log holds every number once and exactly, after kills and resumes too."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gptlite.errors import Interrupted, StorageError
from gptlite.loggers.metrics import MetricLog, Sink
from gptlite.storage import files


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def steps(path: Path) -> list[int]:
    return [line["step"] for line in lines(path)]


class Broken(Sink):
    """A sink that fails."""

    def __init__(self, error: Exception) -> None:
        self.calls, self.error = 0, error

    def log(self, step: int, split: str, values: Mapping[str, float], time: Mapping[str, float]) -> None:
        self.calls += 1
        raise self.error


def test_a_line_keeps_the_order_of_metrics_and_separates_those_of_the_clock(tmp_path: Path) -> None:
    with MetricLog.open(tmp_path, say=pytest.fail) as log:
        log.write(12, "train", {"loss": 0.1 + 0.2, "tokens": 96}, {"elapsed": 1.5, "tokens_per_second": 64.0})
        log.write(12, "val", {"loss": 2.0})
        log.log_sample(12, 'say "grüß\n"')
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 12, "split": "train", "loss": 0.30000000000000004, "tokens": 96, '
        '"time": {"elapsed": 1.5, "tokens_per_second": 64.0}}\n{"step": 12, "split": "val", "loss": 2.0}\n'
    )
    assert (tmp_path / "samples.jsonl").read_text(encoding="utf-8") == '{"step": 12, "text": "say \\"grüß\\n\\""}\n'


def test_floats_read_back_exactly_and_non_finite_numbers_are_null_and_named(tmp_path: Path) -> None:
    numbers = [5e-324, 1 / 3, -0.0, 1.7976931348623157e308]
    with MetricLog.open(tmp_path, say=pytest.fail) as log:
        for step, number in enumerate(numbers):
            log.write(step, "train", {"loss": number})
        log.write(9, "val", {"loss": math.nan, "perplexity": math.inf, "tokens": 3}, {"elapsed": -math.inf})
    *exact, strange = lines(tmp_path / "metrics.jsonl")
    assert [math.copysign(1, line["loss"]) * abs(line["loss"]) for line in exact] == numbers
    assert strange == {
        **{"step": 9, "split": "val", "loss": None, "perplexity": None, "tokens": 3},
        **{"non_finite": {"loss": "nan", "perplexity": "inf"}, "time": {"elapsed": None}},
    }


def test_text_that_is_not_valid_unicode_is_logged(tmp_path: Path) -> None:
    with MetricLog.open(tmp_path, say=pytest.fail) as log:
        log.log_sample(0, "a\udcffb\u2028c")
    assert json.loads((tmp_path / "samples.jsonl").read_bytes()) == {"step": 0, "text": "a\udcffb\u2028c"}


KILLED = """
import os, signal, sys
from pathlib import Path
from gptlite.loggers.metrics import MetricLog, Sink

log = MetricLog.open(Path(sys.argv[1]), say=print)
for step in range(1, 31):
    log.write(step, "train", {"loss": 1.0 / step})
    if step % 10 == 0:
        log.log_sample(step, "text")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_step_is_logged_once_after_a_kill_and_a_resume(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert steps(tmp_path / "metrics.jsonl") == list(range(1, 31))  # nothing was buffered
    with MetricLog.open(tmp_path, resume_step=20, say=pytest.fail) as log:
        assert steps(tmp_path / "samples.jsonl") == [10, 20]
        for step in range(21, 41):
            log.write(step, "train", {"loss": 1.0 / step})
    found = lines(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["loss"]) for line in found] == [(step, 1.0 / step) for step in range(1, 41)]


def test_kept_lines_do_not_change_and_an_unchanged_file_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step":1,  "loss": 1.00}\n{"step": 2}\n')
    inode = path.stat().st_ino
    MetricLog.open(tmp_path, resume_step=2, say=pytest.fail).close()
    assert path.stat().st_ino == inode
    MetricLog.open(tmp_path, resume_step=1, say=pytest.fail).close()
    assert path.read_bytes() == b'{"step":1,  "loss": 1.00}\n'


def test_damaged_lines_are_removed_with_a_warning_and_an_incomplete_last_line_without(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n[3]\n{"step": true}\n{"step": 2}\n{"step": 2, "lo')
    warnings: list[str] = []
    MetricLog.open(tmp_path, resume_step=5, say=warnings.append).close()
    assert steps(path) == [1, 2]
    assert warnings == [f"{path}: removed 3 damaged lines."]


def test_a_new_log_drops_every_line_even_step_0(tmp_path: Path) -> None:
    with MetricLog.open(tmp_path, say=pytest.fail) as log:
        log.write(0, "val", {"loss": 5.0})
    with MetricLog.open(tmp_path, resume_step=0, say=pytest.fail):
        assert steps(tmp_path / "metrics.jsonl") == [0]
    with MetricLog.open(tmp_path, say=pytest.fail):
        assert steps(tmp_path / "metrics.jsonl") == []


def test_metrics_that_cannot_be_written_end_training_with_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(call: Callable[..., Any], *args: Any) -> Any:
        if call is os.write:
            raise OSError(errno.ENOSPC, "")
        return call(*args)

    with MetricLog.open(tmp_path, say=pytest.fail) as log:
        log.write(1, "train", {"loss": 1.0})
        with monkeypatch.context() as patch:
            patch.setattr(files, "syscall", full)
            with pytest.raises(StorageError, match=r"metrics\.jsonl: cannot write: No space left on device"):
                log.write(2, "train", {"loss": 1.0})
        log.write(3, "train", {"loss": 1.0})
    assert steps(tmp_path / "metrics.jsonl") == [1, 3]


def test_an_extra_sink_that_fails_is_dropped_with_one_warning(tmp_path: Path) -> None:
    broken, warnings = Broken(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))), list[str]()
    with MetricLog.open(tmp_path, extras=[broken], say=warnings.append) as log:
        for step in (1, 2, 3):
            log.write(step, "train", {"loss": 1.0})
    assert broken.calls == 1
    assert warnings == ["Broken is switched off: [Errno 28] No space left on device"]
    assert steps(tmp_path / "metrics.jsonl") == [1, 2, 3]


def test_a_signal_that_stops_at_once_is_no_failure_of_a_sink(tmp_path: Path) -> None:
    broken = Broken(Interrupted(2, "stopped"))
    with MetricLog.open(tmp_path, extras=[broken], say=pytest.fail) as log, pytest.raises(Interrupted):
        log.write(1, "train", {"loss": 1.0})


def test_sync_reaches_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    with MetricLog.open(tmp_path, say=pytest.fail) as log:
        log.write(1, "train", {"loss": 1.0})
        monkeypatch.setattr(files, "_fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
        log.sync()
    assert set(synced) == {(tmp_path / name).stat().st_ino for name in ("metrics.jsonl", "samples.jsonl")}

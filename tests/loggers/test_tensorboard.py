"""TensorBoard's own readers see one unbroken curve with every step once."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator

from gptlite.loggers.metrics import Image, MetricLog
from gptlite.loggers.tensorboard import BaselineSink, TensorBoardSink
from gptlite.storage import files


def read(folder: Path) -> EventAccumulator:
    """Read events as tensorboard's library for scripts does."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    return events


def shown(folder: Path) -> PluginEventAccumulator:
    """Read events as the pages do without a data server. Only this reader voids texts."""
    events = PluginEventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return events


def curve(folder: Path, tag: str) -> list[tuple[int, float]]:
    """(step, value) of a tag, on which both readers agree."""
    read_values = [(event.step, event.value) for event in read(folder).Scalars(tag)]
    shown_values = [(event.step, event.tensor_proto.float_val[0]) for event in shown(folder).Tensors(tag)]
    assert shown_values == read_values
    return read_values


def texts(folder: Path, tag: str) -> list[tuple[int, str]]:
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in shown(folder).Tensors(tag)]


def write(sink: TensorBoardSink, first: int, last: int) -> None:
    for step in range(first, last + 1):
        sink.log(step, "train", {"loss": 0.5**step}, {"tokens_per_second": 100.0 + step, "elapsed": 9.0})
        sink.log_sample(step, f"sample {step}")


KILLED = """
import os, signal, sys
from pathlib import Path
from gptlite.loggers.tensorboard import TensorBoardSink

resume_step, last = map(int, sys.argv[2:])
sink = TensorBoardSink(Path(sys.argv[1]), config="steps: 1", resume_step=resume_step)
for step in range(max(1, resume_step + 1), last + 1):
    sink.log(step, "train", {"loss": 0.5 ** step}, {"tokens_per_second": 100.0 + step})
    sink.log_sample(step, f"sample {step}")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, resume_step: int, last: int) -> None:
    """A training from `resume_step` that is killed right after it logged step `last`."""
    subprocess.run([sys.executable, "-c", KILLED, folder, str(resume_step), str(last)], check=False)


def test_tags_are_grouped_and_text_is_shown_unchanged(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, config="run:\n  seed: 1")
    machine = {"elapsed": 1.0, "tokens_per_second": 64.0, "mfu": 0.5, "peak_mib": 300.0}
    sink.log(10, "train", {"loss": 3.0, "lr": 0.5, "grad_norm": 2.0, "tokens": 640}, machine)
    sink.log(10, "val", {"loss": 2.0, "bits_per_byte": 1.5, "perplexity": 8.0, "tokens": 640}, {"elapsed": 1.0})
    sink.log_sample(10, "# to be\nor <b>")
    sink.sync()
    sink.close()
    assert set(read(tmp_path).Tags()["scalars"]) == {
        *("train/loss", "train/lr", "train/grad_norm"),
        *("workload/tokens_per_second", "workload/mfu", "workload/peak_mib"),
        *("val/loss", "val/bits_per_byte", "val/perplexity", "best/bits_per_byte"),
    }
    assert curve(tmp_path, "val/bits_per_byte") == [(10, 1.5)]
    assert texts(tmp_path, "samples") == [(10, "    # to be\n    or <b>")]  # Markdown for: as it is
    assert texts(tmp_path, "config") == [(0, "    run:\n      seed: 1")]
    assert read(tmp_path).SummaryMetadata("samples").plugin_data.plugin_name == "text"


def images(folder: Path, tag: str) -> list[tuple[int, int, int, bytes]]:
    """(step, width, height, file) of a tag, on which both readers agree."""
    read_images = [(e.step, e.width, e.height, e.encoded_image_string) for e in read(folder).Images(tag)]
    shown_images = [(e.step, *e.tensor_proto.string_val) for e in shown(folder).Tensors(tag)]
    assert shown_images == [(step, b"%d" % width, b"%d" % height, file) for step, width, height, file in read_images]
    return read_images


def test_a_resume_voids_images_of_steps_that_it_repeats(tmp_path: Path) -> None:
    def pixels(step: int) -> Image:
        return np.random.default_rng(step).integers(0, 256, (2, 3, 3)).astype(np.uint8)

    for resume_step, steps in ((-1, (10, 20, 30)), (20, (30, 40))):
        sink = TensorBoardSink(tmp_path, resume_step=resume_step)
        for step in steps:
            sink.log_image(step, "attention/layer_1", pixels(step + max(0, resume_step)))
        sink.close()
    expected = [(10, pixels(10)), (20, pixels(20)), (30, pixels(50)), (40, pixels(60))]
    for (step, *size, file), (expected_step, image) in zip(
        images(tmp_path, "attention/layer_1"), expected, strict=True
    ):
        assert (step, *size) == (expected_step, 3, 2)
        with PIL.Image.open(io.BytesIO(file)) as found:
            assert (found.format, found.mode) == ("PNG", "RGB")
            assert np.array_equal(np.asarray(found), image)
    assert shown(tmp_path).SummaryMetadata("attention/layer_1").plugin_data.plugin_name == "images"


def evaluate(sink: TensorBoardSink, step: int, bits_per_byte: float, elapsed: float) -> None:
    """An evaluation of a training that reads 100 tokens an update."""
    sink.log(step, "val", {"bits_per_byte": bits_per_byte, "tokens": 100 * step}, {"elapsed": elapsed})


def test_the_time_of_events_is_that_of_training_also_after_a_pause(tmp_path: Path) -> None:
    first = TensorBoardSink(tmp_path, started_at=1e9)
    for step, value, elapsed in ((10, 4.0, 1.5), (20, 3.0, 2.5), (30, 5.0, 9.0), (40, 2.5, 11.0)):
        evaluate(first, step, value, elapsed)
    first.close()
    resumed = TensorBoardSink(tmp_path, started_at=1e9, resume_step=20, resume_seconds=2.5, best_bits_per_byte=3.0)
    resumed.log_sample(20, "as it was saved")
    for step, value, elapsed in ((30, 3.5, 2.75), (40, 2.0, 4.5), (50, 2.25, 5.0)):
        evaluate(resumed, step, value, elapsed)
    resumed.close()
    steps, values = [10, 20, 30, 40, 50], [4.0, 3.0, 3.5, 2.0, 2.25]
    assert curve(tmp_path, "val/bits_per_byte") == [*zip(steps, values, strict=True)]
    assert curve(tmp_path, "best/bits_per_byte") == [(10, 4.0), (20, 3.0), (30, 3.0), (40, 2.0), (50, 2.0)]
    times = [event.wall_time - 1e9 for event in read(tmp_path).Scalars("val/bits_per_byte")]
    assert times == [1.5, 2.5, 2.75, 4.5, 5.0]
    assert [event.wall_time - 1e9 for event in shown(tmp_path).Tensors("samples")] == [2.5]


def evaluated(folder: Path, steps: Iterable[int], started_at: float = 1e9) -> BaselineSink:
    """The sink of a run that was evaluated at these steps, of half a second each."""
    sink = BaselineSink(folder, "xz", 2.5, started_at)
    for step in steps:
        sink.log(step, "val", {"bits_per_byte": 3.0}, {"elapsed": step / 2})
    return sink


def test_a_baseline_is_as_long_as_the_longest_run_on_the_text(tmp_path: Path) -> None:
    for i, steps in enumerate(((40,), (10, 20), (30, 60))):
        evaluated(tmp_path, steps, 1e9 + 1000 * i).close()
    assert curve(tmp_path / "xz 2.500", "val/bits_per_byte") == [(0, 2.5), (40, 2.5), (60, 2.5)]
    events = read(tmp_path / "xz 2.500").Scalars("val/bits_per_byte")
    assert [event.wall_time - 1e9 for event in events] == [0, 20, 30]


def test_a_file_of_another_name_in_its_folder_does_not_stop_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "xz 2.500").mkdir()
    (tmp_path / "xz 2.500/events.out.tfevents.0000000000.baseline").write_bytes(b"")  # as earlier versions wrote them
    evaluated(tmp_path, [40]).close()
    assert curve(tmp_path / "xz 2.500", "val/bits_per_byte") == [(0, 2.5), (40, 2.5)]


def test_a_baseline_is_at_least_half_as_long_as_a_run_in_training(tmp_path: Path) -> None:
    sink = evaluated(tmp_path, range(10, 91, 10))
    assert curve(tmp_path / "xz 2.500", "val/bits_per_byte") == [(step, 2.5) for step in (0, 10, 20, 40, 80)]
    sink.close()
    assert curve(tmp_path / "xz 2.500", "val/bits_per_byte")[-1] == (90, 2.5)


def test_the_curve_is_unbroken_and_has_every_step_once_after_kills_and_resumes(tmp_path: Path) -> None:
    killed(tmp_path, -1, 30)
    killed(tmp_path, 20, 27)  # resumed at 20, killed before the next save
    sink = TensorBoardSink(tmp_path, config="steps: 1", resume_step=20)
    write(sink, 21, 40)
    sink.close()
    for tag, value in (("train/loss", lambda s: 0.5**s), ("workload/tokens_per_second", lambda s: 100.0 + s)):
        assert curve(tmp_path, tag) == [(step, value(step)) for step in range(1, 41)]
    assert texts(tmp_path, "samples") == [(step, f"    sample {step}") for step in range(1, 41)]
    assert len(texts(tmp_path, "config")) == 1


def test_a_new_run_removes_old_events(tmp_path: Path) -> None:
    killed(tmp_path, -1, 5)
    sink = TensorBoardSink(tmp_path, config="steps: 2")
    write(sink, 3, 4)
    sink.close()
    assert [step for step, _ in curve(tmp_path, "train/loss")] == [3, 4]
    assert texts(tmp_path, "config") == [(0, "    steps: 2")]


def test_an_incomplete_record_does_not_hide_later_ones(tmp_path: Path) -> None:
    killed(tmp_path, -1, 10)
    (torn,) = tmp_path.glob("events.*")
    torn.write_bytes(torn.read_bytes()[:-7])
    sink = TensorBoardSink(tmp_path, resume_step=8)
    write(sink, 9, 12)
    sink.close()
    assert [step for step, _ in curve(tmp_path, "train/loss")] == list(range(1, 13))


def test_a_clock_that_is_set_back_does_not_change_the_order_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now, (resume_step, last) in zip((2e9, 2e9, 1e9), ((-1, 6), (4, 7), (5, 9)), strict=True):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        sink = TensorBoardSink(tmp_path, resume_step=resume_step)
        write(sink, max(1, resume_step + 1), last)
        sink.close()
    assert len(list(tmp_path.glob("events.*"))) == 3
    assert [step for step, _ in curve(tmp_path, "train/loss")] == list(range(1, 10))


def test_a_full_disk_costs_one_warning_and_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(call: Callable[..., Any], *args: Any) -> Any:
        if call is os.open and "tfevents" in str(args[0]):
            raise OSError(errno.ENOSPC, "")
        return call(*args)

    monkeypatch.setattr(files, "syscall", full)
    warnings: list[str] = []
    sink = TensorBoardSink(tmp_path / "tb")
    with MetricLog.open(tmp_path, extras=[sink], say=warnings.append) as log:
        for step in (1, 2, 3):
            log.write(step, "train", {"loss": 1.0})
    assert len(warnings) == 1
    assert "TensorBoardSink is switched off: " in warnings[0]
    assert "No space left on device" in warnings[0]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 3


BROKEN = """
import sys
from pathlib import Path
from gptlite.loggers.metrics import MetricLog
from gptlite.loggers.tensorboard import BaselineSink, TensorBoardSink

folder = Path(sys.argv[1])
sinks = [TensorBoardSink(folder / "tb", config="a: 1"), BaselineSink(folder / "baselines", "xz", 2.0, 0.0)]
with MetricLog.open(folder, extras=sinks, say=print) as log:
    for step in (1, 2):
        log.write(step, "val", {"loss": 1.0, "bits_per_byte": 1.0})
"""


def test_a_broken_protobuf_costs_one_line_for_each_sink_and_no_training(tmp_path: Path) -> None:
    (tmp_path / "google/protobuf").mkdir(parents=True)
    error = "raise TypeError('Descriptors cannot be created directly.\\n')"
    (tmp_path / "google/protobuf/__init__.py").write_text(error)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", BROKEN, tmp_path], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    reason = "Descriptors cannot be created directly."
    assert done.stdout.splitlines() == [
        f"{sink} is switched off: {reason}" for sink in ("TensorBoardSink", "BaselineSink")
    ]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
    assert not (tmp_path / "tb").exists()


def test_nothing_is_imported_or_written_before_the_first_number_and_torch_is_never_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from gptlite.loggers.tensorboard import TensorBoardSink\n"
        "sink = TensorBoardSink(Path(sys.argv[1]))\n"
        "print('tensorboard' in sys.modules, Path(sys.argv[1]).exists())\n"
        "sink.log(1, 'train', {'loss': 1.0}, {}); sink.sync(); sink.close()\n"
        "print('tensorboard' in sys.modules, 'torch' in sys.modules, len(list(Path(sys.argv[1]).glob('events.*'))))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "tb"], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\nTrue False 1\n"

"""The machinery of scripts/bench: figures worked out by hand, and workers of tiny models. Nothing is timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import logging_overhead, steps
from benchmarks.figures import Figure, Spread
from benchmarks.interleaved import Interleaved
from benchmarks.machine import Others
from benchmarks.sizes import Size
from benchmarks.worker import Worker, WorkerFailed

from gptlite.loggers.metrics import MetricLog
from gptlite.training import loop
from gptlite.training.diagnostics import UpdateRatio
from gptlite.training.throughput import Throughput

TINY = Size(n_layer=1, n_head=2, n_embd=16, block_size=16, batch_size=2, vocab_size=33)


class FakeWorker:
    """Takes so many seconds a unit, turn by turn, and notes what it was asked for."""

    def __init__(self, seconds: list[float], asked: list[tuple[object, int]], **facts: object) -> None:
        self.seconds, self.asked, self.facts, self.peak_memory = iter(seconds), asked, {"threads": 2, **facts}, 2**20

    def turn(self, times: int = 1) -> float:
        self.asked.append((self, times))
        return next(self.seconds)


def test_ratios_are_taken_round_by_round_and_shown_as_median_and_extremes() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    # The second round is slow for both: 4/2, 40/10, 9/3. The ratio of the medians would be 9/3 too, of the means 53/15.
    assert Spread.of_ratios([4.0, 40.0, 6.0], [2.0, 10.0, 2.0]) == Spread(3.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ({}, ""),
        ({"at_least": 1.5}, "holds"),
        ({"at_least": 1.6}, "MISSED"),
        ({"at_most": 1.5}, "holds"),
        ({"at_most": 1.4}, "MISSED"),
    ],
)
def test_a_figure_is_held_to_the_least_or_the_most_it_may_be(limits: dict[str, float], verdict: str) -> None:
    figure = Figure("speed", Spread(1.5, 1.0, 9.0), "x", **limits)
    assert figure.cells()[-1] == verdict
    assert figure.to_json()["holds"] is figure.holds is (verdict != "MISSED")


def test_contenders_take_turns_forth_and_back_as_long_as_a_turn_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.interleaved.TURN_SECONDS", 1.0)
    asked: list[tuple[object, int]] = []
    a, b = FakeWorker([9.0, 0.25, 1.0, 2.0, 3.0], asked), FakeWorker([9.0, 5.0, 4.0, 5.0, 6.0], asked)
    interleaved = Interleaved({"a": a, "b": b})  # type: ignore[dict-item]
    interleaved.play(3)
    warm_up = [(a, 1), (b, 1), (a, 1), (b, 1)]
    assert asked == [*warm_up, (a, 4), (b, 1), (b, 1), (a, 4), (a, 4), (b, 1)]
    assert interleaved.seconds == {"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}


def test_what_others_took_is_what_was_busy_without_us(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(moment: float, busy: float | None, ours: float) -> None:
        monkeypatch.setattr("time.monotonic", lambda: moment)
        monkeypatch.setattr("benchmarks.machine.busy_seconds", lambda: busy)
        monkeypatch.setattr("benchmarks.machine.our_seconds", lambda: ours)

    monkeypatch.setattr("os.cpu_count", lambda: 2)
    at(100.0, busy=50.0, ours=3.0)
    others = Others()
    at(110.0, busy=56.0, ours=5.0)
    assert others.share() == 0.2  # 6 core-seconds, 2 of them ours, of 20
    at(110.0, busy=None, ours=5.0)
    assert others.share() is None


def made_up(size: str, native: str) -> list[Figure]:
    """nanoGPT takes 8 s, gptlite 2 s with AdamW and 4 s with Muon; the peak is 1 GFLOP in 0.5 s."""
    asked: list[tuple[object, int]] = []
    precision = "bf16" if native == "cuda" else native
    flops = {"model_flops": 3 * 10**9, "precision": precision}
    workers = {
        "nanoGPT": FakeWorker([], asked, precision="fp32"),
        "gptlite adamw": FakeWorker([], asked, **flops, optimizer_flops=0),
        "gptlite muon": FakeWorker([], asked, **flops, optimizer_flops=10**9),
        "peak fp32": FakeWorker([], asked),
        "peak bf16": FakeWorker([], asked),
    }
    seconds = {"nanoGPT": [8.0], "gptlite adamw": [2.0], "gptlite muon": [4.0], "peak fp32": [1.0], "peak bf16": [1.0]}
    seconds[f"peak {precision}"] = [0.5]
    interleaved = Interleaved(workers, seconds)  # type: ignore[arg-type]
    return steps.figures_of(steps.rows_of(size, interleaved, "nanoGPT"), native)


def test_speed_share_and_memory_follow_from_the_turns_and_limits_from_the_arithmetic_of_the_machine() -> None:
    figures = made_up("six", "bf16")
    # Times nanoGPT; peak memory; share of the peak: 3 and 4 GFLOP at 0.5 s each, in 2 and 4 s.
    assert [figure.value.median for figure in figures] == [4.0, 1.0, 0.75, 2.0, 1.0, 0.5]
    assert [figure.holds for figure in figures] == [False, True, False, False, True, False]  # 4.5, 3.2 and 85 %
    assert all(figure.holds for figure in made_up("six", "fp32"))  # 1.3, and no share
    assert all(figure.holds for figure in made_up("bpe", "bf16"))  # only memory is limited
    # On a GPU 2 and 4 s are more than 4 ms.
    assert [figure.holds for figure in made_up("bpe", "cuda") if figure.unit == "ms"] == [False, False]


def test_a_worker_answers_turns_and_says_why_it_cannot() -> None:
    with Worker("trainers.gptlite", optimizer="adamw", precision="fp32", device="cpu", **TINY.shape()) as worker:
        assert worker.facts["threads"] >= 1
        assert worker.turn() > 0
        assert worker.peak_memory > 10 * 2**20  # torch alone is more
    with pytest.raises(WorkerFailed, match=r"(?s)sizes\.nobody: exit code = 1; .* has no attribute 'nobody'"):
        Worker("sizes.nobody")


def test_what_logging_costs_is_measured_and_everything_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (loop.train_step, MetricLog.write, UpdateRatio.numbers, UpdateRatio.ratio, Throughput.read)
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 200)
    sets = ["data.source=a.txt", "train.max_steps=4", "train.warmup_steps=1", "log.every=2", "run.threads=1"]
    monkeypatch.chdir(tmp_path)
    turn, _ = logging_overhead.training(sets)
    assert 0 < turn(1) < 100
    assert (loop.train_step, MetricLog.write, UpdateRatio.numbers, UpdateRatio.ratio, Throughput.read) == before

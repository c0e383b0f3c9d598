"""`scripts/bench steps`: training steps of gptlite, Hugging Face and nanoGPT, as time, share of the peak and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Spread, table
from benchmarks.interleaved import Interleaved
from benchmarks.sizes import SIZES_OF_DEVICE, Size
from gptlite.compute.limits import ALONE

NANOGPT = "nanoGPT"
OPTIMIZERS = ("adamw", "muon")
# m, k, n of the matrix products
PEAK_SHAPES = {
    "cpu": ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 1024, 1024)),
    "cuda": ((8192, 8192, 8192), (16384, 4096, 4096)),
}

# (size, optimizer) -> the least times nanoGPT's speed where the CPU has only fp32, where it multiplies bf16, and on a
# GPU. With Muon not at gpt2, where its own arithmetic is several times the model's and `auto` does not take it.
LEAST_RATIO = {
    ("small", "adamw"): {"fp32": 1.3, "bf16": 3.5},
    ("small", "muon"): {"fp32": 1.3, "bf16": 2.0},
    ("six", "adamw"): {"fp32": 1.3, "bf16": 4.5},
    ("six", "muon"): {"fp32": 1.3, "bf16": 3.2},
    ("gpt2", "adamw"): {"fp32": 1.3, "bf16": 3.5, "cuda": 1.15},
}
LEAST_SHARE = {"six": {"bf16": 0.85}, "gpt2": {"cuda": 0.5}}  # size -> of the matrix-product peak, either optimizer
MOST_MILLISECONDS = {"bpe": {"cuda": 4.0}}  # size -> of a step


@dataclass(frozen=True)
class Row:
    """What one contender did at one size. `ratio`: times as fast as the baseline; `share`: of the peak at precision."""

    size: str
    contender: str
    precision: str
    seconds: list[float]  # of a step, in each round
    ratio: Spread
    share: Spread
    peak_memory: int  # bytes: the most its process had resident, modules included
    facts: Mapping[str, Any]

    def cells(self) -> list[str]:
        return [
            self.contender,
            self.precision,
            f"{1000 * Spread.of(self.seconds).median:.1f}",
            f"{self.ratio.median:.2f}",
            f"{self.ratio.low:.2f} to {self.ratio.high:.2f}",
            f"{100 * self.share.median:.0f} %",
            f"{self.peak_memory / 2**20:.0f}",
            str(self.facts["threads"]),
        ]


def contenders(
    size: Size, nanogpt: Path | None, precisions: list[str], device: str
) -> dict[str, tuple[str, dict[str, Any]]]:
    """How to build each: the baseline first, then the rest, then the peaks. Ours in the last, the best precision."""
    shape: dict[str, Any] = {"device": device, **size.shape()}
    product = {"device": device, "shapes": PEAK_SHAPES[device]}
    ours = {"precision": precisions[-1], "environment": ALONE}  # as the program sets for itself
    return {
        **({NANOGPT: ("trainers.nanogpt", {"checkout": str(nanogpt), **shape})} if nanogpt else {}),
        **{f"Hugging Face {p}": ("trainers.hugging_face", {"precision": p, **shape}) for p in precisions},
        **{f"gptlite {o}": ("trainers.gptlite", {**ours, "optimizer": o, **shape}) for o in OPTIMIZERS},
        **{f"peak {p}": ("trainers.matrix_product", {"precision": p, **product}) for p in precisions},
    }


def rows_of(name: str, interleaved: Interleaved, baseline: str) -> list[Row]:
    """The interleaved in figures."""
    workers, seconds = interleaved.workers, interleaved.seconds
    model_flops = workers["gptlite adamw"].facts["model_flops"]  # the same equation for all
    rows = []
    for contender, worker in workers.items():
        if contender.startswith("peak"):
            continue
        precision = worker.facts["precision"]
        gflop = (model_flops + worker.facts.get("optimizer_flops", 0)) / 1e9
        at_peak = [gflop * s for s in seconds[f"peak {precision}"]]
        rows.append(
            Row(
                size=name,
                contender=contender,
                precision=precision,
                seconds=seconds[contender],
                ratio=Spread.of_ratios(seconds[baseline], seconds[contender]),
                share=Spread.of_ratios(at_peak, seconds[contender]),
                peak_memory=worker.peak_memory,
                facts=worker.facts,
            )
        )
    return rows


def figures_of(rows: list[Row], native: str) -> list[Figure]:
    """What one size is held to; against nanoGPT only where it took part. native: the best that the CPU multiplies, or
    cuda."""
    figures = []
    theirs = next((row for row in rows if row.contender == NANOGPT), None)
    for row in rows:
        project, _, optimizer = row.contender.partition(" ")
        if project != "gptlite":
            continue
        name = f"{row.size} {optimizer}"
        if theirs is not None:
            ratio, memory = LEAST_RATIO.get((row.size, optimizer), {}).get(native), row.peak_memory / 2**20
            figures += [
                Figure(f"{name}: times nanoGPT", row.ratio, "x", at_least=ratio),
                Figure(f"{name}: peak memory", Spread.of([memory]), "MiB", at_most=theirs.peak_memory / 2**20),
            ]
        if (most := MOST_MILLISECONDS.get(row.size, {}).get(native)) is not None:
            took = Spread.of(1000 * seconds for seconds in row.seconds)
            figures.append(Figure(f"{name}: a step", took, "ms", at_most=most))
        share = LEAST_SHARE.get(row.size, {}).get(native)
        figures.append(Figure(f"{name}: share of the peak", row.share, "", at_least=share))
    return figures


def measure(
    names: list[str], nanogpt: Path | None, rounds: int, precisions: list[str], device: str
) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Rows of the table, printed as they come, and the figures that have limits. precisions: of the CPU."""
    if device == "cuda":
        precisions = ["bf16"]
    if "bf16" not in precisions:
        print("this CPU does not multiply bf16: no rows under bf16 autocast")
    baseline = NANOGPT if nanogpt else f"Hugging Face {precisions[0]}"
    sizes = SIZES_OF_DEVICE[device]
    all_rows: list[dict[str, Any]] = []
    figures: list[Figure] = []
    for name in names:
        with Interleaved.of(contenders(sizes[name], nanogpt, precisions, device)) as interleaved:
            interleaved.play(rounds)
            rows = rows_of(name, interleaved, baseline)
        head = [name, "", "ms/step", f"times {baseline}", "(min to max)", "of peak", "peak MiB", "threads"]
        print(f"\n{sizes[name]}\n{table([head, *(row.cells() for row in rows)])}")
        for precision in precisions:
            rate = Spread.of(1 / s for s in interleaved.seconds[f"peak {precision}"])
            print(
                f"matrix product, {precision}: {rate.median:.0f} ({rate.low:.0f} to {rate.high:.0f}) GFLOP/s",
                flush=True,
            )
        all_rows += [asdict(row) for row in rows]
        figures += figures_of(rows, "cuda" if device == "cuda" else precisions[-1])
    return all_rows, figures

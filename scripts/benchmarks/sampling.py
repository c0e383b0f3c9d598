"""`scripts/bench sampling`: gptlite against Hugging Face's `generate`, one sequence; and sixteen at once."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Figure, Spread, table
from benchmarks.interleaved import Interleaved
from benchmarks.sizes import N_NEW, SIZES
from gptlite.compute.limits import ALONE

LEAST_RATIO = {"six": 3.0, "gpt2": 2.0}  # to Hugging Face
LEAST_BATCHED = {"six": 10.0}  # tokens per second, to those of one row
ROWS = 16
HUGGING_FACE, GPTLITE, BATCHED = "Hugging Face", "gptlite", f"gptlite, {ROWS} rows"
FILTERED, DRAWN = "every filter, streamed", "drawn and no more"  # their seconds outside the model
MOST_FILTERING = {"six": 0.05}  # what filters, stop texts and streaming add, to the seconds of a token


def measure(names: list[str], rounds: int) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Rows of the table, printed as they come, and the figures that have limits."""
    rows: list[dict[str, Any]] = []
    figures = []
    for name in names:
        shape = SIZES[name].shape()
        ours = {**shape, "environment": ALONE}  # as the program sets for itself
        with Interleaved.of(
            {
                HUGGING_FACE: ("samplers.hugging_face", shape),
                GPTLITE: ("samplers.gptlite", {**ours, "n": 1}),
                BATCHED: ("samplers.gptlite", {**ours, "n": ROWS}),
                FILTERED: ("samplers.choosing", {**shape, "everything": True}),
                DRAWN: ("samplers.choosing", {**shape, "everything": False}),
            }
        ) as interleaved:
            interleaved.play(rounds)
        cells = [[name, "tokens/s", "times Hugging Face", "(min to max)", "threads"]]
        outside = zip(interleaved.seconds.pop(FILTERED), interleaved.seconds.pop(DRAWN), strict=True)
        share = Spread.of_ratios([all_of_it - bare for all_of_it, bare in outside], interleaved.seconds[GPTLITE])
        figures.append(Figure(f"{name}: filters and streaming, share", share, "", at_most=MOST_FILTERING.get(name)))
        for contender, seconds in interleaved.seconds.items():
            n_rows = ROWS if contender == BATCHED else 1
            seconds = [s / n_rows for s in seconds]  # of 200 tokens
            ratio = Spread.of_ratios(interleaved.seconds[HUGGING_FACE], seconds)
            speed = Spread.of(N_NEW / s for s in seconds)
            threads = interleaved.workers[contender].facts["threads"]
            rows.append({"size": name, "contender": contender, "seconds": seconds, "threads": threads})
            spread = f"{ratio.low:.2f} to {ratio.high:.2f}"
            cells.append([contender, f"{speed.median:.0f}", f"{ratio.median:.2f}", spread, str(threads)])
            if contender == GPTLITE:
                figures.append(Figure(f"{name}: times Hugging Face", ratio, "x", at_least=LEAST_RATIO.get(name)))
            if contender == BATCHED:
                to_one = Spread.of_ratios(interleaved.seconds[GPTLITE], seconds)
                least = LEAST_BATCHED.get(name)
                figures.append(Figure(f"{name}: {ROWS} rows, tokens/s, to one", to_one, "x", at_least=least))
        print(f"\n{SIZES[name]}\n{table(cells)}", flush=True)
    return rows, figures

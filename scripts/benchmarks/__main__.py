"""The command line of scripts/bench."""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import (
    busy,
    cli_latency,
    grid,
    lessons,
    logging_overhead,
    machine,
    minutes,
    plan_accuracy,
    preparation,
    sampling,
    steps,
    sweep,
)
from benchmarks.figures import Figure, table
from benchmarks.sizes import SAMPLED, SIZES_OF_DEVICE
from gptlite.cli.lesson import find_lessons

QUIET = 0.03  # of the processor, left to others


def chosen(accepted: tuple[str, ...]) -> dict[str, Any]:
    """An option that takes some of these names."""

    def names(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in accepted]
        if unknown:
            raise argparse.ArgumentTypeError(f"{','.join(unknown)}: one or several of {','.join(accepted)}")
        return text.split(",")

    return {"type": names, "default": list(accepted), "metavar": "A,B", "help": f"of {','.join(accepted)} (all)"}


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: a whole number >= 1")
    return int(text)


def checkout(text: str) -> Path:
    if not (Path(text) / "model.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: the folder of a nanoGPT checkout, with model.py in it")
    return Path(text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure; exit 1 if a limit is missed.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    whats = parser.add_subparsers(dest="what", required=True)

    def add(name: str, meaning: str, sizes: tuple[str, ...] = ()) -> argparse.ArgumentParser:
        what = whats.add_parser(name, help=meaning, description=meaning, parents=[shared])
        if sizes:
            what.add_argument("--sizes", **chosen(sizes))
            what.add_argument("--rounds", type=positive, default=7, metavar="N", help="turns of each contender (7)")
        return what

    against = add(
        "steps",
        "training steps against Hugging Face and nanoGPT",
        tuple(dict.fromkeys(itertools.chain(*SIZES_OF_DEVICE.values()))),
    )
    against.set_defaults(sizes=None)  # those of the device
    against.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (cpu)")
    against.add_argument("--nanogpt", type=checkout, metavar="CHECKOUT", help="a checkout of nanoGPT to compare with")
    add("sampling", "sampling against Hugging Face", SAMPLED)
    add("start", "how fast the program answers, and comes to its first update")
    add("runs", "how fast `gptlite runs` lists 500 runs")
    add("quickstart", "the training of scripts/quickstart")
    add("shakespeare", "nanoGPT's CPU setting").add_argument("text", type=Path, help="tiny Shakespeare")
    swept = add("sweep", "train.lr: auto against a quarter to four times of it")
    swept.add_argument("text", type=Path, help="tiny Shakespeare")
    swept.add_argument("--steps", type=positive, default=300, metavar="N", help="updates of each run (300)")
    tabulated = add("grid", "shapes on a text, by updates: more rows for grid.jsonl")
    tabulated.add_argument("text", help="as for gptlite train --data")
    tabulated.add_argument(
        "points", type=grid.point, nargs="+", metavar="POINT", help=f"NAME=N,... of {', '.join(grid.KEYS)}"
    )
    timed = add("minutes", "what --minutes reaches, beside small.yaml with the same clock")
    timed.add_argument("text", help="as for gptlite train --data")
    timed.add_argument("minutes", type=float, metavar="M")
    timed.add_argument("--by-hand", action="store_true", help="beside six shapes that a person might choose, too")
    taught = add("lessons", "configs/lesson-*.yaml: what each changed key does")
    taught.add_argument("text", type=Path, help="a file, tiny Shakespeare for the table in docs/lessons.md")
    taught.add_argument("--seeds", type=positive, default=3, metavar="N", help="runs of each (3)")
    taught.add_argument("--lessons", **chosen(tuple(path.stem for path in find_lessons())))
    costing = add("logging", "what the log costs of the time of updates")
    costing.add_argument("--rounds", type=positive, default=5, metavar="N", help="trainings (5)")
    foreseen = add("plan", "what train --dry-run says against what trainings take")
    foreseen.add_argument("--rounds", type=positive, default=5, metavar="N", help="plans and trainings of each (5)")
    crowded = add("busy", "training and sampling beside programs that keep a core busy")
    crowded.add_argument("--sizes", **chosen(tuple(busy.SIZES)))
    crowded.add_argument("--rounds", type=positive, default=3, metavar="N", help="turns of each (3)")
    prepared = add("prepare", "how fast a large text is prepared, and in how much memory")
    prepared.add_argument("texts", type=Path, nargs="*", metavar="FILE", help="text besides Python's standard library")
    prepared.add_argument("--megabytes", type=positive, nargs="+", default=[200, 2000], metavar="N", help="(200 2000)")
    add("deadlines", "train.max_minutes and --dry-run, alone and beside a busy program")
    arguments = parser.parse_args()
    if arguments.what in ("steps", "sampling") and importlib.util.find_spec("transformers") is None:
        parser.error(f"{arguments.what} compares with transformers, which is not installed: pip install -e '.[dev]'")
    if arguments.what == "steps":
        sizes = SIZES_OF_DEVICE[arguments.device]
        arguments.sizes = arguments.sizes or list(sizes)
        if unknown := [name for name in arguments.sizes if name not in sizes]:
            parser.error(f"--sizes {','.join(unknown)}: {arguments.device} has {', '.join(sizes)}")
    return arguments


def measure(arguments: argparse.Namespace, facts: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Figure]]:
    """Rows of a table, where the command has one, and figures."""
    if arguments.what == "steps":
        precisions = ["fp32", "bf16"] if facts["multiplies_bf16"] else ["fp32"]
        return steps.measure(arguments.sizes, arguments.nanogpt, arguments.rounds, precisions, arguments.device)
    if arguments.what == "sampling":
        return sampling.measure(arguments.sizes, arguments.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.what == "start":
            return [], cli_latency.start(Path(scratch))
        if arguments.what == "runs":
            return [], cli_latency.runs(Path(scratch))
        if arguments.what == "quickstart":
            return [], cli_latency.quickstart(Path(scratch))
        if arguments.what == "logging":
            return [], logging_overhead.measure(Path(scratch), arguments.rounds)
        if arguments.what == "busy":
            return busy.measure(Path(scratch), arguments.sizes, arguments.rounds)
        if arguments.what == "deadlines":
            return [], busy.deadlines(Path(scratch))
        if arguments.what == "prepare":
            return [], preparation.measure(Path(scratch), arguments.megabytes, arguments.texts)
        if arguments.what == "plan":
            return plan_accuracy.measure(Path(scratch), arguments.rounds)
        if arguments.what == "sweep":
            return sweep.measure(arguments.text, arguments.steps, Path(scratch))
        if arguments.what == "grid":
            return grid.measure(arguments.text, arguments.points, Path(scratch)), []
        if arguments.what == "minutes":
            return minutes.measure(arguments.text, arguments.minutes, arguments.by_hand, Path(scratch))
        if arguments.what == "lessons":
            return lessons.measure(arguments.text, arguments.seeds, arguments.lessons, Path(scratch)), []
        return [], cli_latency.shakespeare(Path(scratch), arguments.text)


def main() -> None:
    arguments = parse()
    facts = machine.ask()
    print("{cpu}, {cores} cores, {memory_gib} GiB, {capability}; torch {torch}, commit {commit}".format(**facts))
    others = machine.Others()
    rows, figures = measure(arguments, facts)
    facts["others"] = others.share()
    if figures:
        print("\n" + table([figure.cells() for figure in figures]))
    if facts["others"] is not None and facts["others"] > QUIET:
        print(f"\nother processes took {100 * facts['others']:.0f} % of the processor meanwhile: measure again without")
    if arguments.json:
        record = {"what": arguments.what, "machine": facts, "rows": rows, "figures": [f.to_json() for f in figures]}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    sys.exit(not all(figure.holds for figure in figures))


if __name__ == "__main__":
    main()

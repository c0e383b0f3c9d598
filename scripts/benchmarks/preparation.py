"""How fast `gptlite prepare` is, and how much memory it takes, on text that is larger than memory should be."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import Figure, Spread
from gptlite.data.sources.sources import open_source

MEGABYTE = 1_000_000
_CHANGED = 30  # one byte of so many is another letter in each copy, so that no line repeats
_SAMPLE = 20 * MEGABYTE  # bytes for tiktoken's own rate


def write_text(folder: Path, megabytes: int, others: list[Path]) -> None:
    """Python's standard library and other files, over and over, each time with other letters: a file per copy."""
    folder.mkdir()
    texts = [piece for document in open_source("python-stdlib").documents() for piece in document.pieces]
    texts += [path.read_bytes() for path in others]
    original = np.frombuffer(b"".join(texts), np.uint8)
    rng, written = np.random.default_rng(0), 0
    while written < megabytes * MEGABYTE:
        copy = original.copy()
        at = rng.integers(len(copy), size=len(copy) // _CHANGED)
        at = at[(copy[at] >= ord("a")) & (copy[at] <= ord("z"))]
        copy[at] = rng.integers(ord("a"), ord("z") + 1, size=len(at))
        (folder / f"{written:012}.txt").write_bytes(copy.tobytes()[: megabytes * MEGABYTE - written])
        written += len(copy)
    os.sync()  # nothing of this is left to write while a preparation is measured


def measure(folder: Path, megabytes: list[int], others: list[Path]) -> list[Figure]:
    """Figures for each size of text, the first of them in more detail. `folder` needs four times the text's size."""
    figures: list[Figure] = []
    peaks: dict[str, list[float]] = {"char": [], "bpe": []}
    alone = peak_of([sys.executable, "-c", "import resource"])
    for size in megabytes:
        source = folder / f"text-{size}"
        write_text(source, size, others)
        if size == megabytes[0]:
            figures += _rates(source, folder, size)
            figures.append(_one_line(source, folder, size, alone))
        # The baselines take as long for 200 MB as for 2 GB, so the rate is asked for where the text is largest.
        char = size / _prepare(source, folder, "char", workers=1)["core_seconds"]
        least = {"at_least": 100.0} if size == megabytes[-1] else {}
        figures.append(_figure(f"char, {size} MB: per second of one core", char, "MB/s", **least))
        for kind, found in peaks.items():
            made = _prepare(source, folder, kind, workers=2)
            found.append(made["peak"] - alone)
            name = f"{kind}, {size} MB, two workers"
            figures.append(_figure(f"{name}: peak memory above the interpreter's", found[-1], "MB", at_most=600))
            figures.append(_figure(f"{name}: whole preparation", size / made["seconds"], "MB/s"))
    for kind, found in peaks.items():
        if len(found) > 1:
            name = f"{kind}: peak memory at {megabytes[-1]} MB against {megabytes[0]} MB"
            figures.append(_figure(name, found[-1] / found[0], "times", at_most=1.05))
    return figures


def _rates(source: Path, folder: Path, size: int) -> Iterator[Figure]:
    for kind in ("bpe", "gpt2"):
        made: dict[int, dict[str, Any]] = {}
        alone: dict[int, list[float]] = {1: [], 2: []}
        for workers in (1, 2):
            made[workers] = _prepare(source, folder, kind, workers=workers)
            for threads, found in alone.items():
                found.append(_tiktoken_rate(source, made[workers]["folder"], threads))
        one, two = map(statistics.mean, alone.values())
        rates = {workers: size / (each["seconds"] - each["building"]) for workers, each in made.items()}
        yield _figure(f"{kind}, {size} MB: tiktoken alone, one thread", one, "MB/s")
        yield _figure(f"{kind}, {size} MB: tiktoken alone, two threads against one", two / one, "times")
        yield _figure(f"{kind}, {size} MB, one worker: against tiktoken alone", rates[1] / one, "times", at_least=0.9)
        yield _figure(f"{kind}, {size} MB, two workers: against tiktoken alone", rates[2] / one, "times", at_least=1.8)
        yield _figure(f"{kind}, {size} MB: making the tokenizer", made[1]["building"], "s")


def _one_line(source: Path, folder: Path, size: int, alone: float) -> Figure:
    line = folder / f"line-{size}.txt"
    with line.open("wb") as out:
        for path in sorted(source.iterdir()):
            out.write(path.read_bytes().replace(b"\n", b" "))
    made = _prepare(line, folder, "bpe", workers=2)
    line.unlink()
    name = f"bpe, {size} MB in one line, two workers: peak memory above the interpreter's"
    return _figure(name, made["peak"] - alone, "MB", at_most=600)


def _figure(name: str, value: float, unit: str, **limits: float) -> Figure:
    return Figure(name, Spread.of([value]), unit, **limits)


def peak_of(command: list[str]) -> float:
    """The peak memory of a program, in MB."""
    before = f"import resource, subprocess; subprocess.run({command!r}, check=True)"
    code = f"{before}; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) * 1024 / MEGABYTE


def _prepare(source: Path, folder: Path, kind: str, *, workers: int) -> dict[str, Any]:
    """Prepare a text in a process of its own. A small one starts it: on Linux a peak includes that of the parent."""
    target = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-m", __name__, str(source), str(target), kind, str(workers)]
    begin = f"import subprocess; subprocess.run({command!r}, check=True)"
    done = subprocess.run([sys.executable, "-c", begin], check=True, stdout=subprocess.PIPE, text=True)
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def _tiktoken_rate(source: Path, prepared: str, threads: int) -> float:
    """MB/s of threads that each encode a part of the text a megabyte at a time, and do nothing else."""
    from gptlite.data.dataset.prepared import Prepared

    encode = Prepared(Path(prepared)).tokenizer().encode
    text = next(iter(sorted(source.iterdir()))).read_text("utf-8")[:_SAMPLE]
    pieces = [text[at : at + MEGABYTE] for at in range(0, len(text), MEGABYTE)]
    with ThreadPoolExecutor(threads, initializer=encode, initargs=("",)) as pool:
        list(pool.map(time.sleep, [0.1] * threads))  # then all have begun
        began = time.perf_counter()
        list(pool.map(encode, pieces * threads))
        return threads * len(text.encode()) / MEGABYTE / (time.perf_counter() - began)


def main() -> None:
    """Prepare sys.argv's text, and print what it took as JSON."""
    from gptlite.config.schema import DataSection, RunConfig
    from gptlite.data.preparing import prepare as module

    source, target, kind, workers = sys.argv[1:]
    building = [0.0]

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            began = time.perf_counter()
            made = call(*arguments)
            building[0] += time.perf_counter() - began
            return made

        return run

    for name in ("build", "_begin"):  # training a tokenizer, writing its files
        setattr(module, name, timed(getattr(module, name)))
    began, used = time.perf_counter(), os.times()
    tokenizer = RunConfig().with_values({"tokenizer.kind": kind}).tokenizer
    made = module.prepare(DataSection(source=source, dir=target), tokenizer, workers=int(workers))
    after = os.times()
    found = {
        "seconds": time.perf_counter() - began,
        "core_seconds": after.user + after.system - used.user - used.system,
        "building": building[0],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE,
        "folder": str(made.path),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()

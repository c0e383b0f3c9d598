"""Trains six runs, opens TensorBoard on them and takes pictures of its pages with a headless Chromium."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
GPTLITE = [sys.executable, "-m", "gptlite"]
TENSORBOARD = [sys.executable, "-m", "tensorboard.main"]

KINDS = {"char": "null", "bpe": "1024"}  # vocab_size
WIDTHS = (32, 64, 128)
RESUMED, STOPPED_AT = "char-64", 100
SETTINGS = {
    "model.n_head": 2,
    "train.max_steps": 300,
    "train.batch_size": 16,
    "eval.every": 30,
    "eval.prompt": '"The king is not what he "',
    "save.every": 60,
    "data.val_max_bytes": 30_000,
    "log.attention": "true",
}

# name -> page, width, height, colours of the picture
PAGES = {
    "scalars": ("#scalars&tagFilter=bits_per_byte&_smoothingWeight=0", 1200, 760, 64),
    "training": ("#scalars&tagFilter=train|workload&_smoothingWeight=0", 1200, 900, 64),
    "text": ("#text&tagFilter=samples", 1200, 760, 32),
    "images": ("#images", 1200, 640, 64),
    "hparams": ("#hparams", 1500, 420, 32),
}
IN_DOCUMENTS = ("scalars", "images", "hparams")
PATIENCE = 120.0  # seconds
RENDERING = 20_000  # milliseconds of a page's own time


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description=__doc__)
    parser.add_argument("--text", type=Path, metavar="FILE", help="what to train on; default: the text of small.yaml")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="every page, there; default: those in docs/images")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="where the runs go, and are found")
    arguments = parser.parse_args()
    browser = find_browser()
    with tempfile.TemporaryDirectory() as scratch:
        runs = (arguments.runs or Path(scratch) / "runs").absolute()
        train_all(runs, arguments.text, Path(scratch))
        names, out = (
            (IN_DOCUMENTS, HERE.parent / "docs" / "images") if arguments.out is None else (PAGES, arguments.out)
        )
        out.mkdir(parents=True, exist_ok=True)
        with tensorboard(runs, Path(scratch)) as address:
            for name in names:
                page, width, height, colours = PAGES[name]
                picture = take(browser, address + page, (width, height), Path(scratch))
                path = out / f"{name}.png"
                picture.convert("RGB").quantize(colours).save(path, optimize=True)
                print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def find_browser() -> str:
    names = [os.environ.get("CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    return found or sys.exit("error: chromium = none: a Chromium on PATH; install one or name it: CHROMIUM=/path")


def train_all(runs: Path, text: Path | None, scratch: Path) -> None:
    """Six runs; where one is there, it is not made again."""
    settings = {**SETTINGS, "run.dir": runs, "data.dir": scratch / "prepared"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += [] if text is None else ["--data", str(text.absolute())]
    for kind, vocab_size in KINDS.items():
        for width in WIDTHS:
            name = f"{kind}-{width}"
            own = {"tokenizer.kind": kind, "tokenizer.vocab_size": vocab_size, "model.n_embd": width}
            sets = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
            command = [*GPTLITE, "train", "--config", "small.yaml", "--name", name, *words, *sets]
            if (runs / name).exists():
                continue
            if name == RESUMED:
                stop(command, runs / name)
                command = [*GPTLITE, "train", "--resume", str(runs / name)]
            subprocess.run(command, check=True)


def stop(command: list[str], run: Path) -> None:
    """Begin a training and end it as Ctrl-C does."""
    training = subprocess.Popen(command)
    metrics = run / "metrics.jsonl"
    while training.poll() is None and f'"step": {STOPPED_AT},' not in (metrics.read_text() if metrics.exists() else ""):
        time.sleep(0.01)
    training.send_signal(signal.SIGINT)
    if training.wait() != 128 + signal.SIGINT:
        sys.exit(f"error: {run}: exit code = {training.returncode}: 130 after Ctrl-C")


@contextlib.contextmanager
def tensorboard(runs: Path, scratch: Path) -> Iterator[str]:
    """The address of a TensorBoard that has read all of the runs."""
    options = ["--logdir", runs.name, "--port", "0", "--samples_per_plugin", "images=100,text=100"]
    said = scratch / "tensorboard.log"
    with said.open("w") as log:
        server = subprocess.Popen([*TENSORBOARD, *options], cwd=runs.parent, stderr=log)
    try:
        address = wait_for(lambda: re.search(r"http://\S+/", said.read_text()), f"TensorBoard, which said {said}")[0]
        folders = {str(path.parent.relative_to(runs)) for path in runs.rglob("events.*")}
        wait_for(lambda: folders == set(ask(address + "data/runs")), f"{len(folders)} folders of events")
        pages = {"scalars", "images", "text", "hparams"}
        wait_for(lambda: pages <= enabled(ask(address + "data/plugins_listing")), f"something to show on {pages}")
        yield address
    finally:
        server.terminate()
        server.wait()


def wait_for(what: Callable[[], T | None], name: str) -> T:
    deadline = time.monotonic() + PATIENCE
    while not (found := what()):
        if time.monotonic() > deadline:
            sys.exit(f"error: {name} = none after {PATIENCE:.0f} s")
        time.sleep(1)
    return found


def ask(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def enabled(pages: dict[str, dict[str, bool]]) -> set[str]:
    return {name for name, page in pages.items() if page["enabled"]}


def take(browser: str, address: str, size: tuple[int, int], scratch: Path) -> Image.Image:
    """A picture of a page when it has come to rest."""
    path = scratch / "page.png"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
    options += [f"--user-data-dir={scratch / 'browser'}", f"--window-size={size[0]},{size[1]}"]
    options += [f"--virtual-time-budget={RENDERING}", f"--screenshot={path}"]
    subprocess.run([browser, *options, address], check=True, capture_output=True, timeout=PATIENCE)
    return Image.open(io.BytesIO(path.read_bytes()))


if __name__ == "__main__":
    main()

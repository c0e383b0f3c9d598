"""The runs that a command line names, opened: all of them or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.files import writable
from gptlite.errors import Problem, RunError, gathered, located

if TYPE_CHECKING:
    from gptlite.config.loading import Override
    from gptlite.config.schema import RunConfig
    from gptlite.runs.checkpoint import Checkpoint


@dataclass(frozen=True)
class SelectedModel:
    """A checkpoint, with the config of its run as the command line changed it; `label` tells it from the others."""

    name: str
    label: str
    checkpoint: Checkpoint
    cfg: RunConfig


def choose(
    words: Sequence[str], which: str | None, sets: Sequence[str], say: Callable[[str], None]
) -> list[SelectedModel]:
    """What RUN words and --checkpoint name; without a word, the newest run. RunError with every problem."""
    from gptlite.runs.find import choose_checkpoint, config_of, run_of
    from gptlite.runs.run import runs_folder

    problems: list[Problem] = []
    found: list[Checkpoint] = []
    for word in words or ["latest"]:
        if word and Path(word).is_file():
            sentence = "this is a file, not a run or its folder; to score a text, put --file before it"
            problems.append(Problem(sentence, word))
            continue
        with gathered(problems):
            checkpoint = choose_checkpoint(runs_folder(), word, which, say)
            if any(checkpoint.path.resolve() == other.path.resolve() for other in found):
                problems.append(Problem("this run is given twice; leave one out", word))
            found.append(checkpoint)
    if problems:
        raise RunError(problems)
    with located("--set"):
        cfgs = [config_of(each, [*info_of_a_copy(each), *sets]) for each in found]
    names = [run.name if (run := run_of(each)) is not None else each.path.resolve().name for each in found]
    labels = [f"{name} {each.step}" for name, each in zip(names, found, strict=True)]
    times = Counter(labels)
    return [
        SelectedModel(name, label if times[label] == 1 else str(each.path), each, cfg)
        for name, label, each, cfg in zip(names, labels, found, cfgs, strict=True)
    ]


def info_of_a_copy(checkpoint: Checkpoint) -> list[Override]:
    """What a checkpoint's own folder says of the text it has read, where no run is around it to say so."""
    from gptlite.config.loading import Override
    from gptlite.runs.find import run_of

    if run_of(checkpoint) is not None:
        return []
    info = checkpoint.read_json("config.json").get("gptlite", {})
    return [Override("saved", "data.normalize", info["normalize"])] if "normalize" in info else []


def output_path(names: Sequence[str], out: str | None, ending: str) -> Path:
    """Where a picture or page of these runs goes: --out, or RUN-ending. ConfigError where no file can be written."""
    more = f"-and-{len(names) - 1}-more" if len(names) > 1 else ""
    return writable(f"{names[0]}{more}-{ending}" if out is None else out)

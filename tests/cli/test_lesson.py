"""`gptlite lesson`: both configs are trained with every seed, and the table, the verdict and the page follow."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import pytest

from gptlite.course.lessons import compared_with, find_lessons
from gptlite.runs.run import Run

SMALL = """\
tokenizer: {kind: char}
model: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 16}
train: {max_steps: 20, batch_size: 4, warmup_steps: 2}
eval: {every: 10}
log: {grad_norms: true, tensorboard: false}
"""


def test_each_lesson_is_compared_with_the_one_that_the_documents_name(repository):
    rows = re.findall(r"^\| `(lesson-[a-z-]+)` \| `?([a-z-]*)`? \|", (repository / "docs/lessons.md").read_text(), re.M)
    documented = {name: other or None for name, other in rows if not name.startswith("lesson-base")}
    found = {path.stem: compared_with(path) for path in find_lessons() if path.stem != "lesson-base"}
    assert {name: documented[name] for name in found} == found


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_a_lesson_ends_with_its_table_the_verdict_and_a_page_and_goes_on_where_it_was_stopped(gptlite):
    # Files beside the text come before those that are shipped.
    Path("lesson-base.yaml").write_text(SMALL)
    Path("lesson-post-norm.yaml").write_text(SMALL.replace("n_layer: 1", "n_layer: 1, norm: post"))
    result = gptlite("lesson", "post-norm", "--data", "story.txt", "--seeds", "2")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.startswith("lesson-")}
    for stem in ("lesson-base", "lesson-post-norm"):
        ends = []
        for seed in (1, 2):
            run = Run(Path(f"runs/{stem}-0{seed}-seed={seed}"))
            log = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
            ends.append(next(line["loss"] for line in reversed(log) if line["split"] == "val"))
        assert rows[stem][1:5] == [f"{statistics.mean(ends):.3f}", f"{min(ends):.3f}", "to", f"{max(ends):.3f}"]
    said = json.loads(gptlite("runs", "diff", "lesson-base-01-seed=1", "lesson-post-norm-01-seed=1", "--json").out)
    assert said["sentence"] in lines
    assert lines[-1].startswith("lesson-post-norm.html: ")
    assert said["sentence"].partition(":")[2].split(" (")[0] in Path("lesson-post-norm.html").read_text()
    again = gptlite("lesson", "lesson-post-norm", "--data", "story.txt", "--seeds", "2")
    assert again.out == result.out
    assert "2 of them finished" in again.err


def test_lessons_are_listed_and_an_unknown_one_is_refused_with_their_names(gptlite):
    assert "deep-post-norm-warmup    beside lesson-deep-post-norm\n" in gptlite("lesson").out
    assert gptlite("lesson", "base").refuses("lesson base: there is no such lesson. There are deep, deep-post-norm, ")

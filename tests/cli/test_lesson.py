"""`gptlite lesson`: both configs are trained with every seed, and the table, the verdict and the page follow."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

from gptlite.cli.lesson import describe, find_lessons

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
    found = {path.stem: said[0] for path in find_lessons() if (said := describe(path))}
    assert len(found) == len(find_lessons()) - 1
    assert {name: documented[name] for name in found} == found


def test_a_lesson_ends_with_its_table_the_verdict_and_a_page_and_goes_on_where_it_was_stopped(gptlite):
    # Files beside the text come before those that are shipped.
    Path("lesson-base.yaml").write_text(SMALL)
    Path("lesson-post-norm.yaml").write_text(SMALL.replace("n_layer: 1", "n_layer: 1, norm: post"))
    lesson = ["lesson", "post-norm", "--data", "story.txt", "--seeds"]
    result = gptlite(*lesson, "2")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines[:5] if line.startswith("lesson-")}
    for stem in ("lesson-base", "lesson-post-norm"):
        runs = [Path(f"lessons/story/{stem}-{seed}") for seed in (1, 2)]
        best = [json.loads((run / "finished.json").read_text())["best_bits_per_byte"] for run in runs]
        logs = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]
        ends = [next(line["loss"] for line in reversed(log) if line["split"] == "val") for log in logs]
        loss = [f"{statistics.mean(ends):.3f}", f"{min(ends):.3f}", "to", f"{max(ends):.3f}"]
        assert rows[stem][1:6] == [f"{statistics.mean(best):.4f}", *loss]
    said = json.loads(gptlite("runs", "diff", *(f"lessons/story/{stem}-1" for stem in rows), "--json").out)
    assert said["sentence"] in lines
    assert any(line.endswith("lesson post-norm --seeds 4 --data story.txt") for line in lines) is bool(said["commands"])
    assert lines[-1].startswith("lesson-post-norm.html: ")
    again = gptlite("lesson", "lesson-post-norm", *lesson[2:], "2")
    assert again.out == result.out
    assert "lesson-base-2 is finished after 20 updates." in again.err
    assert gptlite(*lesson, "1").code == 0  # fewer
    Path("more.txt").write_text(Path("story.txt").read_text() * 2)
    assert gptlite("lesson", "post-norm", "--data", "more.txt", "--seeds", "1").code == 0
    assert Path("lessons/more/lesson-base-1/finished.json").exists()


def test_lessons_are_listed_and_an_unknown_one_is_refused_with_their_names(gptlite):
    listed = gptlite("lesson").out
    assert "deep-post-norm-warmup    deep-post-norm with a warm-up of half the updates\n" in listed
    assert gptlite("lesson", "base").refuses("lesson base: there is no such lesson. There are deep, deep-post-norm, ")
    assert gptlite("lesson", "post-nrm").refuses("Did you mean post-norm?")

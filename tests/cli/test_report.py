"""`gptlite report`: one file with what the runs' own files say, safe to open, whatever stands in them."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path

import browser as harness
import pytest

from gptlite.runs.run import Run

NASTY = "</script><script>document.title = 'taken'</script><b>&amp;"


@pytest.fixture
def page_of(gptlite):
    def make(*names: str) -> str:
        result = gptlite("report", *names, "--out", "out.html")
        assert (result.code, result.out) == (0, "out.html\n"), result.err
        return Path("out.html").read_text()

    return make


def words(page: str) -> str:
    """What a reader sees of it."""
    return unescape(re.sub("<[^>]*>", " ", re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)))


def test_one_run_has_its_figures_curves_samples_verdict_and_the_command_that_repeats_it(gptlite, trained, page_of):
    page = page_of("nano")
    end = json.loads((trained / "finished.json").read_text())
    info = json.loads((trained / "run.json").read_text())
    assert f"<td>{end['best_bits_per_byte']:.4f}</td>" in page
    assert f"PPMd {info['ppmd']:.3f}" in page
    assert page.count("<svg") == 2
    samples = [json.loads(line) for line in (trained / "samples.jsonl").read_text().splitlines()]
    shown = [
        (int(step), unescape(text))
        for step, text in re.findall(r'<td>(\d+)</td><td class="text">(.*?)</td>', page, re.DOTALL)
    ]
    assert shown == [(sample["step"], sample["text"]) for sample in samples]
    seen = words(page)
    assert "beside compressors of that text: " in seen
    assert "is copied from the training text" in seen
    assert "gptlite train --config runs/nano/config.yaml" in seen
    assert (trained / "config.yaml").read_text() in seen
    default = gptlite("report", "nano")
    assert default.out == "nano-report.html\n"
    assert Path("nano-report.html").read_text() == page


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_two_settings_have_the_verdict_of_runs_diff_and_a_band_for_their_seeds(gptlite, page_of):
    for name, lr in (("a", 0.02), ("b", 0.5)):
        arguments = ["train", "-c", "nano.yaml", "--set", f"train.lr={lr}", "--seeds", "2", "--name", name, "-q"]
        assert gptlite(*arguments).code == 0
    page = page_of("a-01-seed=1", "b-02-seed=2")
    names = "a-01-seed=1", "b-02-seed=2"  # as they were asked for
    said = [gptlite("runs", "diff", *pair, "--json").out for pair in (names, names[::-1])]
    assert sum(json.loads(each)["sentence"] in words(page) for each in said) == 1  # the best is named first
    assert page.count('class="band"') == 4  # two settings, over tokens and over seconds
    rows = re.findall(r"<td>(\d\.\d{4} ±\d\.\d{4})</td>", page)
    assert rows == sorted(rows)  # the best first
    three = page_of("a-01-seed=1", "b-02-seed=2", "a-02-seed=2")
    assert three.count('class="band"') == 4  # a seed that is named is not another setting


def test_what_stands_in_runs_cannot_inject_markup_and_the_page_needs_no_script(gptlite, trained, page_of, tmp_path):
    path = Path("runs", "x<img src=x>")
    shutil.copytree(trained, path)
    (path / "samples.jsonl").write_text(json.dumps({"step": 3, "text": NASTY}) + "\n")
    page = page_of("x<img src=x>")
    assert "<img" not in page
    assert page.count("<script") == 2  # data, of which there is none, and no code
    assert NASTY in words(page)
    seen = harness.seen_on(harness.find_browser(), tmp_path, page, "return [document.title, document.images.length]")
    assert seen == ["Report: x<img src=x>", 0]


def test_a_run_whose_text_is_gone_or_that_has_not_been_scored_still_has_a_report(gptlite, trained, page_of):
    own = ["--data", "own.txt", "--set", "data.dir=own"]
    Path("own.txt").write_text(Path("story.txt").read_text() * 2)
    assert gptlite("train", "-c", "nano.yaml", *own, "--name", "fresh", "-q").code == 0
    shutil.rmtree("own")
    assert "which is no longer there" in words(page_of("fresh"))
    Path("runs/fresh/metrics.jsonl").write_text("")
    Path("runs/fresh/samples.jsonl").write_text("")
    Run(Path("runs/fresh")).reopen()
    page = page_of("fresh")
    assert page.count("<svg") == 0
    assert "stopped" in page


def test_runs_on_different_texts_are_not_ranked_and_have_no_common_baseline(gptlite, trained, page_of):
    Path("other.txt").write_text(Path("story.txt").read_text()[::-1])
    assert gptlite("train", "-c", "nano.yaml", "--data", "other.txt", "--name", "other", "-q").code == 0
    page = words(page_of("nano", "other"))
    assert "they were scored on different texts" in page
    assert "bytes of story.txt; " in page
    assert "bytes of other.txt; " in page
    assert "against the best" not in page
    assert "PPMd 1" not in page  # in no legend


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_the_seed_that_was_named_is_shown_and_without_a_name_the_newest_run(gptlite, page_of):
    assert gptlite("train", "-c", "nano.yaml", "--seeds", "2", "--name", "s", "-q").code == 0
    for name, seed in (("s-01-seed=1", 1), ("s-02-seed=2", 2)):
        page = page_of(name)
        assert f"seed: {seed}\n" in page
        samples = json.loads(Path(f"runs/{name}/samples.jsonl").read_text().splitlines()[-1])
        assert samples["text"] in unescape(page)
    assert gptlite("report").out == "s-02-seed=2-report.html\n"
    assert "Did you mean s-01-seed=1?" in gptlite("report", "s").err

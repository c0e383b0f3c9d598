"""`gptlite eval`: what it prints, and what it refuses."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gptlite as package
from gptlite.cli import app
from gptlite.formatting import abbreviated
from gptlite.inference import memorization

from .conftest import Gptlite, Result, write_story


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: `char` and `bpe` on one text, `bpe` in NFC, and `many`, of characters, on several documents."""
    folder = tmp_path_factory.mktemp("project")
    write_story(folder)
    (folder / "notes").mkdir()
    with (folder / "story.txt").open("a", encoding="utf-8") as file:
        file.write("日\n")  # fewer characters than bytes, in the validation text
    story = (folder / "story.txt").read_text("utf-8")
    for i in range(20):
        (folder / "notes" / f"{i}.txt").write_text(story[100 * i : 100 * i + 7 * i + 20])
    keys = ("tokenizer.kind=bpe", "tokenizer.vocab_size=270", "data.normalize=nfc")
    bpe = [word for key in keys for word in ("--set", key)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, more in {"char": [], "bpe": bpe, "many": ["--data", "notes"]}.items():
            assert app.run(["train", "-c", "nano.yaml", "--name", name, *more]) == 0
    return folder


@pytest.fixture
def gptlite(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path) -> Gptlite:
    """Runs a command line inside this process, in an empty folder from which the project's runs are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTLITE_RUNS", str(project / "runs"))

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        code = app.run(arguments)
        return Result(code, *capfd.readouterr())

    return run


def judged(gptlite: Gptlite, *arguments: str) -> dict:
    result = gptlite("eval", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.parametrize("name", ["char", "bpe", "many"])
def test_eval_of_the_validation_text_is_the_number_that_training_wrote(gptlite, project, name):
    logged = [json.loads(line) for line in (project / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in logged if line["split"] == "val"][-1]
    (run,) = judged(gptlite, name, "--checkpoint", "6")["runs"]
    assert run["scores"] == [run["total"]]
    assert run["total"]["loss"] == pytest.approx(last["loss"], rel=1e-6)
    assert run["total"]["bits_per_byte"] == pytest.approx(last["bits_per_byte"], rel=1e-6)


def test_the_validation_text_is_scored_with_the_ends_of_its_documents_and_counted_in_characters(gptlite, project):
    shown = judged(gptlite, "many")
    (path,) = (project / "data/prepared").glob("notes-*/manifest.json")
    manifest = json.loads(path.read_text())
    assert manifest["val"]["documents"] > 1
    total = shown["runs"][0]["total"]
    assert total["tokens"] == manifest["val"]["tokens"] == total["characters"] + manifest["val"]["documents"]
    assert (total["bytes"], total["characters"]) == (manifest["val"]["bytes"], shown["texts"][0]["characters"])
    assert shown["texts"][0]["reference"] == manifest["reference"]


def test_runs_of_one_text_are_compared_on_it_each_as_it_is_alone(gptlite):
    both = judged(gptlite, "char", "bpe")
    assert [run["run"] for run in both["runs"]] == ["char", "bpe"]
    assert [text["name"] for text in both["texts"]] == ["validation text of char, bpe"]
    assert (both["texts"][0]["bytes"], both["texts"][0]["characters"]) == (1570, 1568)
    char = both["runs"][0]["total"]
    assert (char["bytes"], char["characters"]) == (1569, 1567)  # the first token has none before it
    assert char["bits_per_character"] == pytest.approx(char["bits_per_byte"] * 1569 / 1567)
    for run in both["runs"]:
        assert [run] == judged(gptlite, run["run"])["runs"]


def test_the_table_has_a_line_for_each_run_and_each_simple_model_and_fits_the_terminal(gptlite):
    shown = judged(gptlite, "char", "bpe")
    lines = gptlite("eval", "char", "bpe").out.splitlines()
    assert max(map(len, lines)) <= 80
    table = {line[:8].strip(): line.split() for line in lines[2:] if "." in line}
    for name, run in zip(("char 6", "bpe 6"), shown["runs"], strict=True):
        figures = [run["total"][key] for key in ("loss", "perplexity", "bits_per_byte", "bits_per_character")]
        assert [float(word) for word in table[name][-4:]] == pytest.approx(figures, abs=1e-3)
        assert table[name][2:4] == [run["tokenizer"], str(run["vocab_size"])]
        assert table[name][5] == f"{run['total']['tokens']:,}"
    for name, key in {"xz -9": "xz", "gzip -9": "gzip", "bigram": "bigram", "unigram": "unigram"}.items():
        assert float(table[name][-2]) == shown["texts"][0]["reference"][key]


def test_a_narrow_terminal_gets_the_names_and_the_figures_that_matter_most(gptlite, monkeypatch):
    wide = gptlite("eval", "char", "bpe").out.splitlines()
    monkeypatch.setattr("gptlite.cli.tables.terminal_width", lambda: 40)
    narrow = gptlite("eval", "char", "bpe").out.splitlines()
    assert narrow[1].split() == ["loss", "bits/byte", "bits/char"]
    assert max(map(len, narrow[1:8])) <= 40
    for line, cut in zip(wide[2:8], narrow[2:8], strict=True):
        assert cut.split()[:2] == line.split()[:2]
        assert cut.split()[-2:] == line.split()[-2:]


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.00k"), (729984, "730k"), (999499, "999k"), (999500, "1.00M"), (5e9, "5.00G")],
)
def test_parameters_are_counted_in_three_digits(number, shown):
    assert abbreviated(int(number)) == shown


def test_files_are_texts_of_their_own_with_a_total(gptlite):
    Path("a.txt").write_text("the cat sat on the hill.\n")
    Path("b.txt").write_text("a dog ran to the mat. " * 60)
    both = judged(gptlite, "char", "--file", "a.txt", "-f", "b.txt")
    alone = [judged(gptlite, "char", "--file", file) for file in ("a.txt", "b.txt")]
    assert both["texts"] == [each["texts"][0] for each in alone]
    (run,) = both["runs"]
    assert run["scores"] == [each["runs"][0]["total"] for each in alone]
    assert run["total"]["tokens"] == 24 + 1319
    nats = sum(score["loss"] * score["tokens"] for score in run["scores"])
    assert run["total"]["bits_per_byte"] == pytest.approx(nats / math.log(2) / (24 + 1319))
    out = gptlite("eval", "char", "--file", "a.txt", "-f", "b.txt").out
    assert [line for line in out.splitlines() if line.endswith("characters")] == [
        "a.txt: 25 bytes, 25 characters",
        "b.txt: 1,320 bytes, 1,320 characters",
        "all 2 texts: 1,345 bytes, 1,345 characters",
    ]
    compressed = 8 * len(gzip.compress(Path("b.txt").read_bytes(), 9)) / 1320
    assert both["texts"][1]["reference"]["gzip"] == pytest.approx(compressed, abs=1e-4)
    short, long, total = out.split("\n\n")[:3]
    assert ["gzip" in part for part in (short, long, total)] == [False, True, True]  # headers would decide


def test_a_model_of_documents_scores_the_first_token_and_the_end_of_a_file_too(gptlite):
    Path("a.txt").write_text("the cat sat on the hill.\n")
    shown = judged(gptlite, "char", "many", "--file", "a.txt")
    assert [run["total"]["tokens"] for run in shown["runs"]] == [24, 26]
    assert [run["total"]["characters"] for run in shown["runs"]] == [24, 25]


def test_a_stride_gives_tokens_more_context_and_scores_the_same_ones(gptlite, project):
    usual = judged(gptlite, "char")["runs"][0]["total"]
    overlapping = judged(gptlite, "char", "--stride", "4")["runs"][0]["total"]
    assert overlapping["tokens"] == usual["tokens"]
    assert overlapping["loss"] != usual["loss"]
    assert judged(gptlite, "char", "--stride", "16")["runs"][0]["total"] == usual
    Path("a.txt").write_text("the cat sat on the hill. a dog ran to the mat.\n")
    from_python = package.load("char").score(Path("a.txt").read_text(), stride=4)
    (run,) = judged(gptlite, "char", "--file", "a.txt", "--stride", "4")["runs"]
    assert run["total"]["loss"] == pytest.approx(from_python.loss, rel=1e-6)


def test_the_loss_by_position_is_drawn_with_a_line_for_each_run(gptlite):
    shown = gptlite("eval", "char", "--by-position")
    assert (shown.code, shown.out) == (0, "char-by-position.svg\n")
    assert gptlite("eval", "char", "bpe", "--by-position").out == "char-and-1-more-by-position.svg\n"
    assert gptlite("eval", "bpe", "char", "--by-position", "--out", "two.svg").out == "two.svg\n"
    one, two = (ElementTree.parse(name).getroot() for name in ("char-by-position.svg", "two.svg"))
    words = [[element.text for element in svg.iter() if element.tag.endswith("text")] for svg in (one, two)]
    assert [text for text in words[1] if "(" in text] == ["bpe 6 (bpe 270)", "char 6 (char 19)"]
    assert "Loss by position in the context: validation text of char" in words[0]
    # 16 positions: the context of the models
    paths = [path.get("d") for path in two.iter() if path.get("class") == "data"]
    assert [path.count(",") for path in paths if "L" in path] == [16, 16]


def test_the_loss_by_position_is_that_of_files_too(gptlite):
    Path("a.txt").write_text("the cat.")
    assert gptlite("eval", "char", "--by-position", "-f", "a.txt").code == 0
    svg = Path("char-by-position.svg").read_text()
    (path,) = re.findall(r'd="(M[^"]* L[^"]*)"', svg)
    assert path.count(",") == 7  # of 8 characters the first has none before it
    assert "Loss by position in the context: a.txt" in svg


@pytest.fixture
def few_samples(monkeypatch):
    monkeypatch.setattr(memorization, "N_SAMPLES", 3)
    monkeypatch.setattr(memorization, "SAMPLE_TOKENS", 40)


def test_what_the_models_write_is_looked_for_in_their_training_text(gptlite, project, few_samples):
    shown = judged(gptlite, "char", "many", "--memorised")
    assert [run["run"] for run in shown["runs"]] == ["char", "many"]
    train = (project / "story.txt").read_text("utf-8")[:14127]
    char = shown["runs"][0]
    assert char["searched"]["bytes"] == 14127
    assert char["samples"]["characters"] == char["validation"]["characters"] == 3 * 40
    # Six phrases in any order: so does every text of them repeat itself.
    assert 0.5 < char["validation"]["share"] <= 1
    assert char["validation"]["stretches"]
    for stretch in (*char["samples"]["stretches"], *char["validation"]["stretches"]):
        assert len(stretch) >= shown["shortest"] == 20
        assert stretch in train


def test_what_was_searched_and_found_is_said_in_words(gptlite, few_samples):
    lines = gptlite("eval", "char", "--memorised").out.splitlines()
    assert lines[0] == "char 6: 3 samples of at most 40 tokens at temperature 1"
    assert lines[1] == "searched: all of its training text, 14,127 bytes in 1 document"
    share = judged(gptlite, "char", "--memorised")["runs"][0]["validation"]["share"]
    assert lines[5] == f"  validation text  {share:6.1%} of 120 characters, which it was not trained on"


def test_checkpoints_of_one_run_are_compared_by_their_folders(gptlite, project):
    folders = [str(project / "runs/char/checkpoints" / f"step-0000000{step}") for step in (3, 6)]
    shown = judged(gptlite, *folders)
    assert [(run["run"], run["step"]) for run in shown["runs"]] == [("char", 3), ("char", 6)]
    assert "\nchar 3 " in (table := gptlite("eval", *folders).out)
    assert "\nchar 6 " in table


def test_equal_validation_text_prepared_apart_is_the_same_text(gptlite, project):
    texts = [path / "manifest.json" for path in (project / "data/prepared").glob("story-*")]
    fingerprints = {json.loads(path.read_text())["fingerprint"] for path in texts}
    assert len(fingerprints) == 2  # so that it was compared byte for byte
    assert len(judged(gptlite, "char", "bpe")["runs"]) == 2


def test_runs_of_different_texts_are_compared_on_a_file_alone(gptlite):
    result = gptlite("eval", "char", "many")
    assert result.code == 2
    (line,) = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: validation text = not the same in char 6 (")
    assert " and many 6 (" in line
    assert line.endswith("give them a text with --file")


def test_a_text_prepared_by_an_older_version_is_judged_by_the_same_simple_models(gptlite, project):
    before = judged(gptlite, "char")
    folder = json.loads((project / "runs/char/run.json").read_text())["prepared"]
    manifest = Path(folder) / "manifest.json"
    content = manifest.read_text()
    older = json.loads(content)
    del older["reference"]["bigram"]
    manifest.write_text(json.dumps(older))
    try:
        assert judged(gptlite, "char") == before
    finally:
        manifest.write_text(content)


BAD = [
    pytest.param(["char", "-f", "one.txt"], ["one.txt = 1 token: at least 2 are needed"], id="one-token"),
    pytest.param(["char", "-f", "empty.txt"], ["empty.txt: text = 0 bytes: a file with text is needed"], id="empty"),
    pytest.param(["char", "-f", "binary.txt"], ["binary.txt: byte 0 = 0x00: text is needed"], id="binary"),
    pytest.param(
        ["char", "-f", "things", "-f", "gone.txt"],
        ["--file = things: a text file, and this is a folder", "--file = gone.txt: no such file"],
        id="folder-and-missing-file",
    ),
    pytest.param(
        ["char", "-f", "other.txt"],
        ["other.txt: unknown characters = '\u00e9' (U+00E9, first at character 3)"],
        id="unknown-character",
    ),
    pytest.param(
        ["bpe", "char", "many", "-f", "other.txt", "-f", "one.txt"],
        [
            "bpe 6: one.txt = 1 token",
            "char 6: other.txt: unknown characters = '\u00e9'",
            "char 6: one.txt = 1 token",
            "many 6: other.txt: unknown characters",
        ],
        id="unknown-character-to-one-of-the-runs",
    ),
    pytest.param(["char", "-f", "aa.txt", "-f", "aa.txt"], ["--file = aa.txt: given twice"], id="a-file-twice"),
    pytest.param(["char", "--stride", "0"], ["--stride = 0: 1 to model.block_size (16)"], id="no-stride"),
    pytest.param(
        ["char", "bpe", "--stride", "17"],
        ["char 6: --stride = 17: 1 to model.block_size (16)", "bpe 6: --stride = 17"],
        id="stride-above-the-context",
    ),
    pytest.param(["char", "char"], ["char: run = given twice"], id="a-run-twice"),
    pytest.param(
        ["char", "--by-position", "--json", "--stride", "3"],
        ["--stride = given: not with --by-position", "--json = given: not with --by-position"],
        id="by-position-with-other-options",
    ),
    pytest.param(
        ["char", "--memorised", "--file", "one.txt"], ["--file = given: not with --memorised"], id="memorised-of-a-file"
    ),
    pytest.param(
        ["char", "--by-position", "--memorised"], ["--memorised = given: not with --by-position"], id="two-ways-at-once"
    ),
    pytest.param(["char", "--out", "x.svg"], ["--out = given: only with --by-position"], id="out-of-the-table"),
    pytest.param(
        ["char", "--by-position", "--out", "things"], ["--out things: this is a folder"], id="out-is-a-folder"
    ),
    pytest.param(
        ["char", "--by-position", "--out", "no/x.svg"], ["--out no/x.svg: there is no folder no"], id="out-nowhere"
    ),
    pytest.param(
        ["char", "--checkpoint", "3", "gone", "many"],
        ["there are char, bpe, many"],
        id="one-of-several-runs-is-not-there",
    ),
    pytest.param(
        ["char", "one.txt", "bpe", "things"],
        ["one.txt: run = a file: a run's name or folder; to score a text, put --file before it", "things: run = no "],
        id="a-file-in-the-place-of-a-run",
    ),
]


@pytest.mark.parametrize(("arguments", "messages"), BAD)
def test_eval_refuses_what_it_cannot_score_with_every_problem_at_once(gptlite, arguments, messages):
    Path("one.txt").write_text("a")
    Path("aa.txt").write_text("aa")
    Path("empty.txt").write_bytes(b"")
    Path("binary.txt").write_bytes(bytes(9))
    Path("other.txt").write_text("cat\u00e9")
    Path("things").mkdir()
    result = gptlite("eval", *arguments)
    assert result.code == 2
    assert result.out == ""
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(messages)
    for message, error in zip(messages, errors, strict=True):
        assert message in error
    assert "Traceback" not in result.err


def test_a_broken_run_among_others_is_named_before_anything_is_scored(gptlite, project, tmp_path):
    shutil.copytree(project / "runs/bpe", tmp_path / "broken")
    for model in (tmp_path / "broken/checkpoints").glob("*/model.safetensors"):
        model.write_bytes(model.read_bytes()[:-1])
    result = gptlite("eval", "char", "broken", "gone")
    assert (result.code, result.out) == (2, "")
    errors = [line for line in result.err.splitlines() if line.startswith("error: ")]
    assert ["model.safetensors: size = " in errors[0], "run = gone" in errors[1], len(errors)] == [True, True, 2]


def test_a_file_that_is_not_the_same_text_to_all_runs_is_refused(gptlite, project, tmp_path):
    config = shutil.copytree(project / "runs/bpe", tmp_path / "raw") / "config.yaml"
    config.write_text(config.read_text().replace("normalize: nfc", "normalize: none"))
    Path("e.txt").write_text("cafe\u0301")
    refused = gptlite("eval", "bpe", "raw", "-f", "e.txt")
    assert refused.code == 2
    assert "--file = e.txt: not the same text to all runs, which read it as utf-8 nfc and utf-8 none" in refused.err
    same = judged(gptlite, "bpe", "raw", "-f", "e.txt", "--set", "data.normalize=nfc")
    assert [run["total"]["bytes"] for run in same["runs"]] == [4, 4]
    inert = gptlite("eval", "bpe", "-f", "e.txt", "--set", "data.normalize=none")
    assert inert.code == 2
    assert "error: e.txt: data.normalize = none: the model reads every text as nfc; leave it so" in inert.err


def test_a_checkpoint_folder_copied_alone_reads_files_in_the_normal_form_of_its_training_text(gptlite, project):
    shutil.copytree(project / "runs/bpe/checkpoints/step-00000006", "copied")
    Path("e.txt").write_text("cafe\u0301")
    (run,) = judged(gptlite, "copied", "-f", "e.txt")["runs"]
    assert (run["run"], run["total"]["bytes"], run["total"]["characters"]) == ("copied", 4, 3)

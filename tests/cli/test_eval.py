"""`gptlite eval`: scores, plots, memorised text, and refused arguments."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gptlite as package
from gptlite.cli import app
from gptlite.cli.eval.measures import conclusion
from gptlite.course import exposure_bias
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
    monkeypatch.setenv("GPTLITE_THREADS", "1")  # as in conftest.py

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        code = app.run(arguments)
        return Result(code, *capfd.readouterr())

    return run


PREFIXES = ("true", "own", "other")


def eval_json(gptlite: Gptlite, *arguments: str) -> dict:
    result = gptlite("eval", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def rows_of(gptlite: Gptlite, *arguments: str) -> list[dict]:
    """The rows of models and baselines on one text."""
    (text,) = eval_json(gptlite, *arguments)["texts"]
    return text["rows"]


@pytest.mark.parametrize("name", ["char", "bpe", "many"])
def test_the_score_of_the_validation_text_is_the_one_that_training_logged(gptlite, project, name):
    logged = [json.loads(line) for line in (project / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in logged if line["split"] == "val"][-1]
    row = rows_of(gptlite, name, "--checkpoint", "6")[0]
    assert row["loss"] == pytest.approx(last["loss"], rel=1e-6)
    assert row["bits_per_byte"] == pytest.approx(last["bits_per_byte"], rel=1e-6)


def test_the_validation_text_is_scored_with_the_ends_of_its_documents_and_counted_in_characters(gptlite, project):
    (text,) = eval_json(gptlite, "many")["texts"]
    (path,) = (project / "data/prepared").glob("notes-*/MANIFEST.json")
    manifest = json.loads(path.read_text())
    assert manifest["val"]["documents"] > 1
    row, *baselines = text["rows"]
    assert row["tokens"] == manifest["val"]["tokens"] == row["characters"] + manifest["val"]["documents"]
    assert (row["bytes"], row["characters"]) == (manifest["val"]["bytes"], text["characters"])
    for baseline in baselines:
        assert baseline["bits_per_byte"] == manifest["baselines"][baseline["label"].removesuffix(" -9")]


def test_runs_are_scored_together_as_each_is_alone(gptlite, project):
    texts = [path / "MANIFEST.json" for path in (project / "data/prepared").glob("story-*")]
    # Prepared separately, so that their validation texts were compared byte for byte.
    assert len({json.loads(path.read_text())["fingerprint"] for path in texts}) == 2
    (both,) = eval_json(gptlite, "char", "bpe")["texts"]
    assert both["name"] == "validation text of char, bpe"
    assert (both["bytes"], both["characters"]) == (1570, 1568)
    char, bpe, *baselines = both["rows"]
    assert (char["bytes"], char["characters"]) == (1569, 1567)  # the first token has none before it
    assert char["bits_per_character"] == pytest.approx(char["bits_per_byte"] * 1569 / 1567)
    assert rows_of(gptlite, "char") == [char, *baselines]
    assert rows_of(gptlite, "bpe") == [bpe, *baselines]


def test_the_table_has_a_line_for_each_run_and_each_baseline_and_fits_a_terminal(gptlite):
    char, bpe, *baselines = rows_of(gptlite, "char", "bpe")
    lines = gptlite("eval", "char", "bpe").out.splitlines()
    assert max(map(len, lines)) <= 80
    table = {line[:8].strip(): line.split() for line in lines[2:] if "." in line}
    for row in (char, bpe):
        words = table[row["label"]]
        figures = [row[key] for key in ("loss", "perplexity", "bits_per_byte", "bits_per_character")]
        assert [float(word) for word in words[-4:]] == pytest.approx(figures, abs=1e-3)
        assert (" ".join(words[2:4]), words[5]) == (row["tokenizer"], f"{row['tokens']:,}")
    assert [row["label"] for row in baselines] == ["PPMd", "xz -9", "gzip -9", "bigram", "unigram"]
    for row in baselines:
        assert float(table[row["label"]][-2]) == row["bits_per_byte"]


def test_files_have_a_table_each(gptlite):
    Path("a.txt").write_text("the cat sat on the hill.\n")
    Path("b.txt").write_text("a dog ran to the mat. " * 60)
    both = eval_json(gptlite, "char", "--file", "a.txt", "-f", "b.txt")["texts"]
    assert both == [eval_json(gptlite, "char", "--file", file)["texts"][0] for file in ("a.txt", "b.txt")]
    assert [text["rows"][0]["tokens"] for text in both] == [24, 1319]
    out = gptlite("eval", "char", "--file", "a.txt", "-f", "b.txt").out
    assert [line for line in out.splitlines() if line.endswith("characters")] == [
        "a.txt: 25 bytes, 25 characters",
        "b.txt: 1,320 bytes, 1,320 characters",
    ]
    compressed = 8 * len(gzip.compress(Path("b.txt").read_bytes(), 9)) / 1320
    labels = [[row["label"] for row in text["rows"]] for text in both]
    assert labels == [["char 6", "bigram", "unigram"], ["char 6", "xz -9", "gzip -9", "bigram", "unigram"]]
    assert both[1]["rows"][2]["bits_per_byte"] == pytest.approx(compressed, abs=1e-4)


def test_a_model_trained_on_documents_also_scores_the_first_token_and_the_end_of_a_file(gptlite):
    Path("a.txt").write_text("the cat sat on the hill.\n")
    char, many = rows_of(gptlite, "char", "many", "--file", "a.txt")[:2]
    assert (char["tokens"], char["characters"], many["tokens"], many["characters"]) == (24, 24, 26, 25)


def test_a_stride_gives_tokens_more_context_and_scores_the_same_ones(gptlite, project):
    usual = rows_of(gptlite, "char")[0]
    overlapping = rows_of(gptlite, "char", "--stride", "4")[0]
    assert overlapping["tokens"] == usual["tokens"]
    assert overlapping["loss"] != usual["loss"]
    assert rows_of(gptlite, "char", "--stride", "16")[0] == usual
    Path("a.txt").write_text("the cat sat on the hill. a dog ran to the mat.\n")
    from_python = package.load("char").score(Path("a.txt").read_text(), stride=4)
    assert rows_of(gptlite, "char", "--file", "a.txt", "--stride", "4")[0]["loss"] == pytest.approx(
        from_python.loss, rel=1e-6
    )


def test_by_position_plots_a_line_for_each_run(gptlite):
    shown = gptlite("eval", "char", "--by-position")
    assert (shown.code, shown.out) == (0, "char-by-position.svg\n")
    assert gptlite("eval", "char", "bpe", "--by-position").out == "char-and-1-more-by-position.svg\n"
    assert gptlite("eval", "bpe", "char", "--by-position", "--out", "two.svg").out == "two.svg\n"
    one, two = (ElementTree.parse(name).getroot() for name in ("char-by-position.svg", "two.svg"))
    words = [[element.text for element in svg.iter() if element.tag.endswith("text")] for svg in (one, two)]
    assert [text for text in words[1] if "(" in text] == ["bpe 6 (bpe 270)", "char 6 (char 19)"]
    assert "Loss by position in the context, with 95 % intervals: validation text of char" in words[0]
    # 16 positions, the context of the models, in eight bins
    paths = [path.get("d") for path in two.iter() if path.get("class") == "data"]
    assert [path.count(",") for path in paths if "L" in path] == [8, 8]
    Path("a.txt").write_text("the cat.")
    assert gptlite("eval", "char", "--by-position", "-f", "a.txt").code == 0
    svg = Path("char-by-position.svg").read_text()
    # Of 8 characters the first has none before it; the others are at 1, 2, 3, 4, 5 to 6, and 7.
    assert re.findall(r'class="data"[^>]* d="(M[^"]* L[^"]*)"', svg)[0].count(",") == 6
    assert "Loss by position in the context, with 95 % intervals: a.txt" in svg


def test_a_text_that_a_model_was_trained_on_is_named(gptlite, project):
    own = str(project / "story.txt")
    assert f"{own}: char was trained on this text" in gptlite("eval", "char", "--file", own).err
    Path("a.txt").write_text("the cat.")
    assert "was trained on" not in gptlite("eval", "char", "--file", "a.txt").err


def test_memorised_finds_passages_of_samples_in_the_training_text(gptlite, project, monkeypatch):
    monkeypatch.setitem(memorization.SAMPLING, "n", 3)
    monkeypatch.setitem(memorization.SAMPLING, "max_new_tokens", 40)
    shown = eval_json(gptlite, "char", "many", "--memorised")
    assert [run["run"] for run in shown["runs"]] == ["char", "many"]
    train = (project / "story.txt").read_text("utf-8")[:14127]
    char = shown["runs"][0]
    assert char["searched_bytes"] == 14127
    assert char["samples"]["characters"] == char["validation"]["characters"] == 3 * 40
    # Six phrases in any order: so does every text of them repeat itself.
    assert 0.5 < char["validation"]["share"] <= 1
    longest = char["validation"]["longest"]
    assert len(longest) >= shown["min_characters"] == 20
    windows = [i for i in range(len(longest) - 19) if longest[i : i + 20] in train]
    assert {i + place for i in windows for place in range(20)} == set(range(len(longest)))
    lines = gptlite("eval", "char", "--memorised").out.splitlines()
    assert lines[:2] == [
        "char 6: 3 samples of at most 40 tokens at temperature 1",
        "copied word for word from the training text, 14,127 bytes, in passages of at least 20 characters:",
    ]
    share = char["validation"]["share"]
    assert lines[3].startswith(f"  validation text  {share:6.1%} of 120 characters, for comparison: the model was not ")


def test_checkpoint_folders_of_one_run_can_be_compared(gptlite, project):
    folders = [str(project / "runs/char/checkpoints" / f"step-0000000{step}") for step in (3, 6)]
    assert [(row["run"], row["step"]) for row in rows_of(gptlite, *folders)[:2]] == [("char", 3), ("char", 6)]
    assert "\nchar 3 " in (table := gptlite("eval", *folders).out)
    assert "\nchar 6 " in table


def test_runs_with_different_validation_texts_can_only_be_compared_on_a_file(gptlite):
    result = gptlite("eval", "char", "many")
    assert result.code == 2
    (line,) = result.errors
    assert line.startswith("char 6 and many 6 have different validation texts (")
    assert line.endswith("Compare them on the same text with --file.")


BAD = [
    (["char", "-f", "one.txt"], ["one.txt: the text has 1 token, but scoring needs at least 2."]),
    (["char", "-f", "empty.txt"], ["empty.txt: there is no text here (skipped: 1 empty file: empty.txt)."]),
    (["char", "-f", "binary.txt"], ["binary.txt: this is not text but binary data: it has NUL characters. "]),
    (["char", "-f", "things"], ["--file things: this is a folder, not a text file."]),
    (["char", "-f", "gone.txt"], ["--file gone.txt: there is no such file."]),
    (["char", "-f", "other.txt"], ["other.txt: the tokenizer does not know '\u00e9' (U+00E9): it knows"]),
    (["bpe", "char", "-f", "other.txt", "-f", "one.txt"], ["bpe 6: one.txt: the text has 1 token"]),
    (["char", "--stride", "0"], ["--stride: a stride of 0 is not possible. Use 1 to model.block_size (16)."]),
    (["char", "bpe", "--stride", "17"], ["char 6: --stride: a stride of 17 is not possible."]),
    (["char", "char"], ["char: this run is given twice. Leave one out."]),
    (
        ["char", "--by-position", "--json", "--stride", "3"],
        ["--stride cannot be combined with --by-position.", "--json cannot be combined with --by-position."],
    ),
    (["char", "--memorised", "--file", "one.txt"], ["--file cannot be combined with --memorised."]),
    (["char", "--by-position", "--memorised"], ["--memorised cannot be combined with --by-position."]),
    (["char", "--out", "x.svg"], ["--out has no effect without --by-position or --per-token or"]),
    (["char", "--by-position", "--out", "things"], ["--out things: this is"]),
    (["char", "--by-position", "--out", "x.png"], ["--out x.png: what is written there is SVG. End the name in .svg."]),
    (["char", "--by-position", "--out", "no/x.svg"], ["--out no/x.svg: there is no"]),
    (["char", "--checkpoint", "3", "gone", "many"], ["The newest runs are char, bpe, many."]),
    (["char", "one.txt"], ["one.txt: this is not the folder of a run"]),
]


@pytest.mark.parametrize(("arguments", "messages"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_what_eval_cannot_do_is_refused(gptlite, arguments, messages):
    Path("one.txt").write_text("a")
    Path("empty.txt").write_bytes(b"")
    Path("binary.txt").write_bytes(bytes(9))
    Path("other.txt").write_text("cat\u00e9")
    Path("things").mkdir()
    result = gptlite("eval", *arguments)
    assert (result.code, result.out) == (2, "")
    for message, error in zip(messages, result.errors, strict=True):
        assert message in error
    assert "Traceback" not in result.err


def test_exposure_bias_is_a_table_with_its_intervals_and_says_what_it_shows(gptlite, monkeypatch):
    monkeypatch.setattr(exposure_bias, "MOST_WINDOWS", 20)
    (run,) = eval_json(gptlite, "char", "--exposure-bias")["runs"]
    assert (run["run"], run["windows"], run["prefix_tokens"]) == ("char", 20, 8)
    assert [row["tokens"] for row in run["rows"]] == ["1", "2", "3 - 4", "5 - 9", "all"]
    for row in run["rows"]:
        gaps = [row["own"] - row[name] for name in ("true", "other")]
        assert gaps == pytest.approx([row["own_minus_true"]["mean"], row["own_minus_other"]["mean"]])
    means = [sum(n * row[name] for n, row in zip((1, 1, 2, 5), run["rows"], strict=False)) / 9 for name in PREFIXES]
    assert means == pytest.approx([run["rows"][-1][name] for name in PREFIXES])
    out = gptlite("eval", "char", "--exposure-bias").out
    table = {line[:16].strip(): re.findall(r"[-+]?\d+\.\d+", line[16:]) for line in out.splitlines() if " ± " in line}
    assert list(table)[:5] == ["1", "2", "3 - 4", "5 - 9", "all"]
    for cells, row in zip(table.values(), run["rows"], strict=False):
        gaps = [row[gap][figure] for gap in ("own_minus_true", "own_minus_other") for figure in ("mean", "margin")]
        assert [float(cell) for cell in cells] == pytest.approx([*(row[name] for name in PREFIXES), *gaps], abs=1e-3)
    assert "Means of 20 windows; ± is a 95% interval over windows." in out
    assert f"own - other: {conclusion(**run['rows'][-1]['own_minus_other'])}" in out
    assert max(map(len, out.splitlines()[:14])) <= 80


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [
        (-0.3, "context than true text: exposure bias."),
        (0.3, "no exposure bias is seen."),
        (0.1, "show no exposure bias."),
    ],
)
def test_the_verdict_on_exposure_bias_depends_on_the_interval(mean, verdict):
    assert conclusion(mean, margin=0.2).endswith(verdict)


def test_a_text_of_less_than_two_windows_is_refused_for_exposure_bias(gptlite):
    Path("short.txt").write_text("the cat sat on the mat. a dog ran")
    result = gptlite("eval", "char", "--exposure-bias", "--file", "short.txt")
    assert result.refuses("char 6: short.txt: the text has 33 tokens. At least 34 are needed, two windows of 17.")


def test_a_broken_run_is_reported_before_anything_is_scored(gptlite, project, tmp_path):
    shutil.copytree(project / "runs/bpe", tmp_path / "broken")
    for model in (tmp_path / "broken/checkpoints").glob("*/model.safetensors"):
        model.write_bytes(model.read_bytes()[:-1])
    result = gptlite("eval", "char", "broken")
    assert (result.code, result.out) == (2, "")
    (problem,) = result.errors
    assert "model.safetensors: the file has " in problem


def test_a_file_that_runs_read_as_different_texts_is_refused(gptlite):
    Path("e.txt").write_text("cafe\u0301")
    assert gptlite("eval", "bpe", "char", "-f", "e.txt").refuses(
        "--file e.txt: the runs read this file as utf-8 nfc and utf-8 none, which gives different texts."
    )


def test_a_copied_checkpoint_folder_normalizes_files_like_its_training_text(gptlite, project):
    shutil.copytree(project / "runs/bpe/checkpoints/step-00000006", "copied")
    Path("e.txt").write_text("cafe\u0301")
    row = rows_of(gptlite, "copied", "-f", "e.txt")[0]
    assert (row["run"], row["bytes"], row["characters"]) == ("copied", 4, 3)

"""`gptlite runs`: list and diff."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from gptlite.runs.run import Run


def json_of(path: Path) -> dict[str, Any]:
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "sha256"}


def varied(name: str, best: float | None = None, **changes: object) -> Path:
    """A copy of the trained run under another name, with other keys and another best score."""
    path = Path("runs", name)
    shutil.copytree("runs/nano", path)
    config = (path / "config.yaml").read_text()
    for key, value in changes.items():
        # Of the two seeds, the run's comes first.
        config, times = re.subn(rf"^  {key}: .*$", f"  {key}: {value}", config, count=1, flags=re.MULTILINE)
        assert times == 1
    info = json_of(path / "run.json")
    reasons = {key: why for key, why in info["reasons"].items() if key.partition(".")[2] not in changes}  # now given
    Run(path).write_setup(info | {"reasons": reasons}, config)
    if best is not None:
        Run(path).finish(json_of(path / "finished.json") | {"best_bits_per_byte": best})
    return path


def rows(out: str) -> list[list[str]]:
    """The cells of a table."""
    return [re.split(r" {2,}", line.strip()) for line in out.splitlines()]


def test_a_finished_run_is_listed_with_its_figures(gptlite, trained):
    header, row = rows(gptlite("runs").out)
    shown = dict(zip(header, row, strict=True))
    end = json.loads((trained / "finished.json").read_text())
    assert (shown["run"], shown["state"], shown["step"], shown["tokenizer"]) == ("nano", "finished", "6/6", "char")
    assert shown["tokens"] == str(6 * 8 * 16)
    assert shown["bits/byte"] == f"{end['best_bits_per_byte']:.4f}"
    assert gptlite("runs").out == gptlite("runs", "list").out == gptlite("runs", "runs").out


def test_seeds_share_a_row_and_the_table_says_what_else_differs(gptlite, trained):
    for name, best, seed in (("a", 2.0, 1), ("b", 2.2, 2), ("c", 2.4, 3)):
        varied(name, best, seed=seed, lr=0.5)
    result = gptlite("runs", "--filter", "lr=0.5")
    assert [row[0] for row in rows(result.out)] == ["run", "a (3 seeds)"]
    assert "2.2000 ±0.2000" in result.out
    both = gptlite("runs").out
    assert "lr 0.5" in both
    assert "seed" not in both.replace("(3 seeds)", "")
    alone = rows(gptlite("runs", "--no-fold").out)
    # Three of the four have lr 0.5: only that of the other is worth saying.
    assert {row[0]: row[-1] for row in alone[1:]} == {
        **{"a": "seed 1", "b": "seed 2", "c": "seed 3"},
        "nano": "seed 1337, lr 0.02",
    }


def test_json_says_what_the_table_says(gptlite, trained):
    varied("a", 2.0, seed=1, lr=0.5)
    varied("b", 2.2, seed=2, lr=0.5)
    first, second = json.loads(gptlite("runs", "--json").out)["runs"]
    assert (first["name"], first["runs"], first["seeds"], first["max_steps"]) == ("a", ["a", "b"], 2, 6)
    assert (first["best_bits_per_byte"], first["best_bits_per_byte_std"]) == pytest.approx((2.1, 0.2 / 2**0.5))
    assert (first["config"]["train.lr"], first["config"]["run.seed"]) == (0.5, None)
    assert (second["name"], second["state"], second["step"]) == ("nano", "finished", 6)
    assert second["best_bits_per_byte_std"] is None


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--sort", "best"], ["b", "a", "nano"]),
        (["--sort", "lr"], ["nano", "a", "b"]),
        (["--sort", "train.lr", "--filter", "n"], ["nano"]),
        (["--filter", "state=stopped"], ["b"]),
        (["--filter", "lr=5e-1"], ["a"]),
        (["--filter", "train.lr=0.7", "--filter", "state=finished"], []),
    ],
)
def test_runs_are_sorted_and_filtered(gptlite, trained, words, names):
    varied("a", 2.0, lr=0.5)
    stopped = varied("b", lr=0.7)
    (stopped / "finished.json").unlink()
    log = {"step": 3, "split": "val", "bits_per_byte": 1.0}
    (stopped / "metrics.jsonl").write_text(json.dumps(log) + "\n")
    result = gptlite("runs", "--json", *words)
    assert result.code == 0
    assert [run["name"] for run in json.loads(result.out)["runs"]] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sort", "learning_rate"], "--sort: learning_rate is neither a key of the config nor one of name, state"),
        (["--sort", "learning_rate"], "Did you mean train.lr?"),
        (
            ["--filter", "every=3"],
            "--filter: several keys are called every. Did you mean eval.every or save.every or log.every?",
        ),
        (["nowhere"], "nowhere: there is no such folder."),
        (["--srot", "best"], "gptlite runs list: there is no option --srot. Did you mean --sort?"),
        (["--sort"], "error: gptlite runs list: option '--sort' requires an argument. See gptlite runs list --help."),
        (["diff", "nano", "none"], "run none: there is no run of this name in runs"),
        (["diff", "nano", "nano"], "nano: this run is given twice. Leave one out."),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(gptlite, trained, words, message):
    before = sorted(Path().rglob("*"))
    result = gptlite("runs", *words)
    assert result.refuses(message)
    assert result.out == ""
    assert sorted(Path().rglob("*")) == before


def test_an_unreadable_run_is_reported_and_the_rest_is_listed(gptlite, trained):
    Path("runs/broken").mkdir()
    varied("a\nb\x1b[31m")  # a name cannot break lines or control the terminal
    result = gptlite("runs")
    assert result.code == 0
    assert [row[0] for row in rows(result.out)] == ["run", r"a\nb\x1b[31m", "nano"]
    assert result.err == "runs/broken: skipped, since it has no config.yaml: not a run, or killed at its start.\n"
    Path("empty").mkdir()
    result = gptlite("runs", "empty")
    assert (result.code, result.out, result.err) == (0, "", "empty: no runs yet\n")


def test_diff_shows_configs_and_samples(gptlite, trained):
    varied("a", 2.0, seed=1, lr=0.5)
    varied("b", 2.2, seed=2, lr=0.5)
    (Path("runs/a/samples.jsonl")).write_text('{"step": 6, "text": "first\\nsecond"}\n')
    result = gptlite("runs", "diff", "nano", "a")
    assert result.code == 0
    lines = [re.split(r" {2,}", line.strip()) for line in result.out.splitlines()]
    assert ["state", "finished", "finished"] in lines
    assert ["train.lr", "0.02", "0.5"] in lines
    assert not any(line[0] == "train.batch_size" for line in lines)
    assert "\nnano, sample at step 6\n" in result.out
    assert result.out.endswith("\na, sample at step 6\n  first\n  second\n")


def test_diff_reports_a_text_that_changed(gptlite, trained):
    run = Run(varied("config", lr=0.5))
    out = gptlite("runs", "diff", "config", "nano").out
    assert re.search(r"^train\.lr +0\.5 +0\.02$", out, re.MULTILINE)
    assert "text: not the same" not in out
    run.write_setup(run.info | {"data": "0" * 64}, run.config_text())
    assert "text: not the same." in gptlite("runs", "diff", "nano", "config").out


VERDICTS = ("cannot tell", "is better", "one setting", "no relevant difference")


def verdict(out: str) -> list[str]:
    """What `runs diff` says about which run is better: a sentence, and commands."""
    lines = out.splitlines()
    (start,) = [i for i, line in enumerate(lines) if any(words in line for words in VERDICTS)] or [len(lines)]
    return [line for i, line in enumerate(lines[start : start + 3]) if i == 0 or line.startswith("  ")]


def seeds(name: str, *scores: float, **changes: object) -> None:
    for seed, best in enumerate(scores, 1):
        varied(f"{name}-{seed}", best, seed=seed, **changes)


# Best scores of the seeds of a and of b, two runs, the sentence, and its exit code; t is Student's 0.975 quantile.
SCORES = [
    # Variances 0.00016562 and 0.00001458: error sqrt(0.0000901) = 0.009492, 1.175 degrees of freedom, t of 1.17 9.076.
    # With seven of each: 0.01198.
    (
        *((2.0000, 2.0182), (1.9998, 1.9944), ("a-2", "b-1")),
        "cannot tell which is better: the mean best bits per byte differ by 0.0120 (95 % interval -0.0742 to 0.0982; "
        "2 seeds of a-2 and 2 of b-1, which holds zero). If means and spreads stay, 5 more of each would tell",
        12,
    ),
    (
        *((0.1, 0.1), (0.1, 0.1, 0.1), ("a-1", "b-1")),
        "no relevant difference: the mean best bits per byte differ by 0.0000 (95 % interval 0.0000 to 0.0000; 2 seeds "
        "of a-1 and 3 of b-1), and up to 0.0005 is not relevant",
        11,
    ),
    # Means 2.4 and 2.05; variances 0.01 and 0.005: error sqrt(0.01 / 3 + 0.0025) = 0.076376; degrees of freedom
    # 0.0058333^2 / (0.0033333^2 / 2 + 0.0025^2) = 2.88: t 3.26. 0.35 -+ 0.249
    (
        *((2.3, 2.4, 2.5), (2.0, 2.1), ("a-1", "b-2")),
        "b-2 is better: its mean best bits per byte is lower by 0.3500 (95 % interval 0.1011 to 0.5989; 3 seeds of a-1 "
        "and 2 of b-2)",
        10,
    ),
    (
        *((2.3, 2.4, 2.5), (2.0, 2.1), ("b-2", "a-1")),
        "b-2 is better: its mean best bits per byte is lower by 0.3500 (95 % interval 0.1011 to 0.5989; 2 seeds of b-2 "
        "and 3 of a-1)",
        0,
    ),
    # Differences of the pairs 0.01, 0.015, 0.008, 0.011: mean 0.011, deviation 0.002944, t of 3 3.182: -+ 0.004684
    (
        *((2.0, 2.1, 2.2, 2.3), (2.01, 2.115, 2.208, 2.311), ("a-1", "b-1")),
        "a-1 is better: its mean best bits per byte is lower by 0.0110 (95 % interval 0.0063 to 0.0157; 4 pairs of "
        "equal seeds)",
        0,
    ),
    (
        *((2.0, 3.0), (2.5,), ("a-1", "a-2")),
        "both are runs of one setting: their scores differ by chance only",
        12,
    ),
]


@pytest.mark.parametrize(("of_a", "of_b", "pair", "said", "code"), SCORES)
def test_a_setting_is_better_only_if_the_interval_does_not_hold_zero(gptlite, trained, of_a, of_b, pair, said, code):
    seeds("a", *of_a, lr=0.5)
    seeds("b", *of_b, lr=0.7)
    result = gptlite("runs", "diff", *pair, "--exit-code")
    assert result.code == code
    assert verdict(result.out)[0] == said
    as_json = json.loads(gptlite("runs", "diff", *pair, "--json").out)
    assert as_json["sentence"] == said
    assert as_json["answer"] == {0: "better", 10: "worse", 11: "same", 12: "unknown"}[code]


def test_the_seeds_that_would_tell_are_a_command_away(gptlite, trained):
    seeds("a", 2.0000, 2.0182, lr=0.5)
    seeds("b", 1.9998, 1.9944, lr=0.7)
    _, *commands = verdict(gptlite("runs", "diff", "a-1", "b-1").out)
    more = [f"runs/{name}-1/config.yaml --sweep run.seed=3,4,5,6,7 --name {name}-1-seeds" for name in "ab"]
    assert [command.endswith(end) for command, end in zip(commands, more, strict=True)] == [True, True]


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_one_seed_each_cannot_tell_and_says_what_trains_more(gptlite, trained):
    varied("a", 2.0, seed=1, lr=0.5)
    varied("b", 2.1, seed=2, lr=0.7)
    said, *commands = verdict(gptlite("runs", "diff", "a", "b").out)
    assert said == "one seed each: cannot tell which is better. The scores differ by 0.1000. Train more seeds:"
    seeds("c", 2.9, 3.0, 3.1, dropout=0.1)
    said, *_ = verdict(gptlite("runs", "diff", "a", "b").out)
    assert "differ by 0.1000. Seeds of runs of about this size differ by 3.33% (standard deviation, 1 setting)." in said
    assert [command.split("=")[1] for command in commands] == ["2,3 --name a-seeds", "1,3 --name b-seeds"]
    for command in commands:
        assert gptlite(*shlex.split(command)[1:]).code == 0
    assert "seeds of a" in verdict(gptlite("runs", "diff", "a", "b").out)[0]


def test_the_noise_of_the_validation_text_is_said_beside_that_of_the_seeds(gptlite, trained):
    end = json_of(trained / "finished.json")
    nats, n_bytes = (sum(each) for each in zip(*end["best_blocks"], strict=True))
    assert nats / n_bytes / math.log(2) == pytest.approx(end["best_bits_per_byte"])
    for name, extra in (("a", [0.1, 0.3]), ("b", [0.2, 0.0])):
        path = varied(name, 2.0, lr=0.5 if name == "a" else 0.7)
        blocks = [(bits * math.log(2) * 1000, 1000) for bits in extra]
        Run(path).finish(json_of(path / "finished.json") | {"best_blocks": blocks})
    # The parts differ by -0.1 and 0.3 bits per byte: a standard error of 0.2, times Student's t of one degree, 12.706.
    said = (
        "another validation text of this kind could change the difference by ±2.5412 (95 %, from 2 parts of this one)"
    )
    assert said in gptlite("runs", "diff", "a", "b").out.splitlines()
    over_text = json.loads(gptlite("runs", "diff", "a", "b", "--json").out)["over_text"]
    assert over_text == {
        "difference": pytest.approx(0.1),
        "interval": pytest.approx([-2.4412, 2.6412], abs=1e-3),
        "parts": 2,
    }


def test_the_margin_decides_what_is_relevant(gptlite, trained):
    seeds("a", 2.000, 2.001, 2.002, lr=0.5)
    seeds("b", 2.003, 2.004, 2.005, lr=0.7)
    # The difference of 0.003 -+ t of 4 2.776 x sqrt(2 x 1e-6 / 3): up to 0.00527, and half a per cent is 0.01.
    assert gptlite("runs", "diff", "a-1", "b-1", "--exit-code").code == 11
    assert gptlite("runs", "diff", "a-1", "b-1", "--exit-code", "--margin", "0.25").code == 0
    assert gptlite("runs", "diff", "a-1", "b-1", "--margin", "-1").refuses(
        "'--margin': this must be greater than or equal to 0"
    )


def test_the_values_of_a_key_are_each_compared_with_the_best(gptlite, trained):
    seeds("a", 2.0, 2.1, 2.2, lr=0.5)
    seeds("b", 3.0, 3.1, 3.2, lr=0.7)
    seeds("c", 2.01, 2.11, 2.21, lr=0.9)
    varied("d", 2.05, seed=1, lr=1.5)
    varied("other", 1.0, seed=1, lr=0.1, dropout=0.1)
    shutil.rmtree("runs/nano")
    header, *listed = rows(gptlite("runs", "diff", "b-2", "--by", "lr").out)
    assert header[0] == "train.lr"
    assert [(row[0], row[1], row[-1]) for row in listed] == [
        ("1.5", "1", "best"),
        ("0.5", "3", "cannot tell"),
        ("0.9", "3", "cannot tell"),
        ("0.7", "3", "cannot tell"),
    ]
    shutil.rmtree("runs/d")
    _, *listed = rows(gptlite("runs", "diff", "b-2", "--by", "lr").out)
    assert [(row[0], row[-1]) for row in listed] == [("0.5", "best"), ("0.9", "cannot tell"), ("0.7", "worse")]
    found = json.loads(gptlite("runs", "diff", "b-2", "--by", "train.lr", "--json").out)
    assert [entry.get("answer") for entry in found["settings"]] == [None, "unknown", "worse"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nano", "gptlite runs diff: name two runs, or one run and --by KEY."),
        ("nano --by lr", "run nano: no other finished run in its folder differs from it in train.lr alone."),
        ("nano --by nothing", "--by: nothing is no key of the config."),
        ("nano --by lr --exit-code", "--exit-code with --by: "),
    ],
)
def test_what_cannot_be_compared_is_refused(gptlite, trained, line, said):
    assert gptlite("runs", "diff", *line.split()).refuses(said)


def test_an_unfinished_run_gets_no_verdict(gptlite, trained):
    seeds("a", 2.0, 2.1, lr=0.5)
    seeds("b", 3.0, 3.1, lr=0.7)
    varied("half", lr=0.7)
    Path("runs/half/finished.json").unlink()
    said = "cannot tell which is better: half is not finished (stopped)"
    assert verdict(gptlite("runs", "diff", "a-1", "half").out) == [said]
    with Run(Path("runs/a-1")).lock():
        both = verdict(gptlite("runs", "diff", "half", "a-1").out)
    assert both == [f"{said} and a-1 is not finished (running)"]


def test_finished_runs_without_a_score_are_compared_as_far_as_possible(gptlite, trained):
    seeds("a", 2.0, 2.1, lr=0.5)
    for name in ("b", "c"):
        path = varied(name, seed=1, lr=0.7)
        (path / "metrics.jsonl").unlink()
        Run(path).finish({"step": 6})
    result = gptlite("runs", "diff", "a-1", "b")
    assert (result.code, verdict(result.out)) == (0, ["cannot tell which is better: b has no score"])
    varied("d", 2.0, seed=2, lr=0.7)
    said, *_ = verdict(gptlite("runs", "diff", "a-1", "d").out)
    assert said.startswith("2 seeds of a-1 and 1 seed of d: cannot tell which is better.")


@pytest.mark.usefixtures("sweeps_in_this_process")
def test_runs_on_different_texts_are_no_verdict_and_the_command_that_compares_them_is_printed(gptlite, trained):
    Path("other.txt").write_text(Path("story.txt").read_text()[::-1])
    assert gptlite("train", "-c", "nano.yaml", "--data", "other.txt", "--name", "b").code == 0
    said, command = verdict(gptlite("runs", "diff", "nano", "b").out)
    assert said == "cannot tell which is better: they were scored on different texts. Score them on one:"
    assert gptlite(*shlex.split(command.replace("FILE", "story.txt"))[1:]).code == 0


def test_a_score_without_a_mask_is_marked_ranks_last_and_is_not_compared(gptlite, trained):
    varied("a", 2.0, seed=1)
    varied("b", 2.2, seed=2)
    varied("blind", 0.1, variant="no_mask")
    header, *listed = rows(gptlite("runs", "--sort", "best").out)
    scores = {row[0]: row[header.index("bits/byte")] for row in listed}
    assert [*scores][-1] == "blind"
    assert scores["blind"] == "0.1000 (no mask)"
    assert sum("no mask" in score for score in scores.values()) == 1
    said = " ".join(gptlite("runs", "diff", "a", "blind").out.split())
    assert "blind has no mask (model.variant: no_mask): it reads the tokens that it is scored on" in said
    assert "a has no mask" not in said
    assert "is better: its" not in said


def test_rows_of_other_texts_or_amounts_are_said_to_be_so(gptlite, trained):
    assert gptlite("runs").err == ""
    varied("short", 2.0, lr=0.5)
    Path("runs/short/metrics.jsonl").write_text("")
    Run(Path("runs/short")).finish(json_of(trained / "finished.json") | {"step": 2})
    for said in (gptlite("runs").err, gptlite("runs", "diff", "nano", "short").out):
        assert "these runs were trained on different amounts of text" in said
    varied("other", 2.0, source="other.txt")
    assert "these scores are of 2 different texts and cannot be compared." in gptlite("runs").err

"""`gptlite sample` as it is typed: where prompts come from, what is shown, and what would do nothing."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from pathlib import Path

import pytest

from gptlite.cli.terminal import emit
from gptlite.runs.checkpoint import Checkpoint


def json_lines(result) -> list[dict]:
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def type_in(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


def test_prompts_come_from_the_command_line_standard_input_and_files_each_as_it_would_alone(
    gptlite, trained, monkeypatch
):
    Path("dog.txt").write_text("a dog \n")
    type_in(monkeypatch, "the cat\n")
    prompts = ["--prompt", "the ", "--prompt", "-", "--prompt-file", "dog.txt"]
    together = json_lines(gptlite("sample", *prompts, "-n", "2", "--max-new-tokens", "40", "--json"))
    assert [(line["prompt"], line["sample"]) for line in together] == [
        (prompt, i) for prompt in ("the ", "the cat", "a dog ") for i in (1, 2)
    ]
    alone = json_lines(gptlite("sample", "--prompt", "a dog ", "-n", "2", "--max-new-tokens", "40", "--json"))
    assert [line["text"] for line in alone] == [line["text"] for line in together[-2:]]
    plain = gptlite("sample", "--prompt", "the ", "--prompt", "a dog ", "--max-new-tokens", "40")
    texts = [f"the {together[0]['text']}\n", f"a dog {together[4]['text']}\n"]
    heads = [f"--- {i} of 2: prompt {i}, sample 1\n" for i in (1, 2)]
    assert plain.out == "".join(head + text for head, text in zip(heads, texts, strict=True))


def test_json_holds_the_tokens_their_log_probabilities_and_why_the_text_ended(gptlite, trained):
    [line] = json_lines(gptlite("sample", "--prompt", "the ", "--max-new-tokens", "9", "--json", "--explain"))
    assert (line["reason"], len(line["tokens"]), len(line["text"])) == ("length", 9, 9)
    [judged] = json_lines(gptlite("sample", "--prompt", "the ", "--logprob", line["text"], "--json"))
    assert judged["logprobs"] == pytest.approx(line["logprobs"], abs=1e-5)
    assert judged["logprob"] == pytest.approx(sum(line["logprobs"]), abs=1e-4)
    for chosen, logprob, top_logprobs in zip(line["tokens"], line["logprobs"], line["likeliest"], strict=True):
        assert len(top_logprobs) == 5
        assert top_logprobs == sorted(top_logprobs, key=lambda pair: -pair[1])
        assert dict(top_logprobs).get(chosen, logprob) == logprob


def test_an_explained_sample_shows_each_token_among_its_rivals_and_then_the_text(gptlite, trained):
    text = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "6").out
    explained = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "6", "--explain").out
    assert explained.endswith(text)
    assert explained.count("\ntoken ") == 6
    chosen = [line for line in explained.splitlines() if line.startswith("  >")]
    assert "the " + "".join(json.loads(line[4 : line.rindex('"') + 1]) for line in chosen) + "\n" == text


def test_whole_text_is_what_streams_and_what_a_file_holds(gptlite, trained):
    streamed = gptlite("sample", "--prompt", "the ", "-n", "2", "--max-new-tokens", "30").out
    assert gptlite("sample", "--prompt", "the ", "-n", "2", "--max-new-tokens", "30", "--no-stream").out == streamed
    Path("written.txt").write_text("something old")
    silent = gptlite("sample", "--prompt", "the ", "-n", "2", "--max-new-tokens", "30", "--out", "written.txt")
    assert (silent.code, silent.out) == (0, "")
    assert Path("written.txt").read_text() == streamed


def test_a_file_behind_a_link_and_a_pipe_are_written_into_not_replaced(gptlite, trained):
    text = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "9").out
    Path("target.txt").write_text("old")
    Path("target.txt").chmod(0o640)
    Path("link.txt").symlink_to("target.txt")
    assert gptlite("sample", "--prompt", "the ", "--max-new-tokens", "9", "--out", "link.txt").code == 0
    assert Path("link.txt").is_symlink()
    assert (Path("target.txt").read_text(), Path("target.txt").stat().st_mode & 0o777) == (text, 0o640)
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert gptlite("sample", "--prompt", "the ", "--max-new-tokens", "9", "--out", "pipe").code == 0
    assert os.read(reader, 1000).decode() == text
    os.close(reader)


def test_beams_find_texts_that_judging_agrees_with_the_best_first(gptlite, trained):
    arguments = ("sample", "--prompt", "the ", "--beams", "4", "-n", "3", "--max-new-tokens", "12")
    found = json_lines(gptlite(*arguments, "--json"))
    assert [line["rank"] for line in found] == [1, 2, 3]
    assert [line["score"] for line in found] == sorted((line["score"] for line in found), reverse=True)
    judged = json_lines(
        gptlite("sample", "--prompt", "the ", "--json", *(x for line in found for x in ("--logprob", line["text"])))
    )
    for line, other in zip(found, judged, strict=True):
        assert line["logprob"] == pytest.approx(other["logprob"], abs=1e-4)
        assert line["score"] == pytest.approx(line["logprob"] / 12)
    shown = gptlite(*arguments).out
    assert [f"the {line['text']}" in shown for line in found] == [True] * 3
    sums = json_lines(gptlite(*arguments, "--length-penalty", "0", "--json"))
    assert sums[0]["score"] == sums[0]["logprob"]


def test_every_way_of_choosing_acts(gptlite, trained):
    def text(*options: str) -> str:
        [line] = json_lines(gptlite("sample", "--prompt", "the ", "--max-new-tokens", "60", "--json", *options))
        return line["text"]

    free = text("-t", "1.5")
    ways = (("--top-k", "2"), ("--top-p", "0.3"), ("--min-p", "0.5"), ("--repetition-penalty", "2"))
    texts = [text("-t", "1.5", *way) for way in ways]
    assert len({free, *texts}) == 5
    assert text("-t", "1.5", "--top-k", "100000") == free  # more than there are: all of them
    greedy = text("-t", "0")
    assert greedy == text("-t", "1.5", "--top-k", "1") == text("-t", "2", "--min-p", "1")
    assert text("-t", "1.5", "--stop", "never to come") == free
    [line] = json_lines(gptlite("sample", "--prompt", "the ", "-t", "1.5", "--json", "--max-new-tokens", "60"))
    [stopped] = json_lines(
        gptlite("sample", "--prompt", "the ", "-t", "1.5", "--json", "--stop-token", str(line["tokens"][7]))
    )
    assert (stopped["reason"], stopped["tokens"]) == (
        "stop token",
        line["tokens"][: line["tokens"].index(line["tokens"][7])],
    )


def test_unknown_characters_are_left_out_only_when_asked(gptlite, trained):
    skipped = gptlite("sample", "--prompt", "th\u00e9e \u65e5", "--unknown", "skip")
    assert skipped.code == 0
    assert "--prompt: 2 unknown characters left out" in skipped.err
    assert skipped.out == gptlite("sample", "--prompt", "the ").out
    assert gptlite("sample", "--prompt", "the ", "--unknown", "skip").err.count("\n") == 1
    refused = gptlite("sample", "--prompt", "th\u00e9e")
    assert (refused.code, refused.out) == (2, "")
    assert "'\u00e9' (U+00E9, first at character 2" in refused.err


def test_interactive_mode_answers_each_line_and_survives_a_wrong_one(gptlite, trained, monkeypatch):
    type_in(monkeypatch, "the \n\nna\u00efve\na dog \n")
    result = gptlite("sample", "--interactive", "--max-new-tokens", "20")
    assert result.code == 0
    first = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "20").out
    last = gptlite("sample", "--prompt", "a dog ", "--max-new-tokens", "20").out
    again = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "20", "--seed", "1").out
    assert result.out == f"> {first}> {again}> > {last}> \n"
    assert "error: prompt: unknown characters = '\u00ef'" in result.err


REFUSED = [
    (["--beams", "4", "-t", "0.5"], "--temperature: does nothing beside --beams"),
    (["--beams", "4", "--set", "sample.seed=3"], "--set: sample.seed=3: does nothing beside --beams"),
    (["--beams", "4", "--top-k", "5"], "--top-k: sample.top_k = 5: null, since beams draw nothing"),
    (["--beams", "4", "-n", "5"], "-n: sample.n = 5: at most as many as beams (4)"),
    (["--beams", "100000"], "--beams = 100000: at most"),
    (["--length-penalty", "2"], "--length-penalty: sample.length_penalty = 2.0: null, since only beams have it"),
    (["--logprob", "x", "--max-new-tokens", "3"], "--max-new-tokens: does nothing beside --logprob"),
    (["--json", "--stream"], "--stream: does nothing beside --json"),
    (["-i", "--prompt", "the"], "--prompt: does nothing beside --interactive"),
    (["--min-p", "0"], "--min-p: sample.min_p = 0.0: a number > 0 and <= 1"),
    (["--repetition-penalty", "0"], "--repetition-penalty: sample.repetition_penalty = 0.0: a number > 0"),
    (["--stop-token", "1000"], "--stop-token = 1000: an id from 0 to"),
    (["--prompt", "-", "--prompt", "-"], "--prompt = -: once"),
    (["--prompt-file", "gone.txt"], "--prompt-file = gone.txt: no such file"),
    (["--prompt-file", "runs"], "--prompt-file = runs: a text file, and this is a folder"),
    (["--prompt-file", "latin.txt"], "--prompt-file = latin.txt"),
    (["--out", "no/such/folder/x.txt"], "--out no/such/folder/x.txt: there is no folder no/such/folder"),
    (["--out", "runs"], "--out runs: this is a folder"),
    (["--out", ""], "--out .: this is a folder"),
    (["-t", "0", "--top-k", "5"], "--top-k: does nothing beside temperature 0"),
    (["--beams", "2", "--length-penalty", "1e6"], "--length-penalty: sample.length_penalty = 1000000.0: a number"),
    (["--logprob", "na\u00efve"], "--logprob: unknown characters = '\u00ef'"),
    (["--logprob", ""], '--logprob = "": a text'),
]


def test_what_would_do_nothing_or_cannot_be_done_is_refused(gptlite, trained):
    Path("latin.txt").write_bytes(b"t\xe9")
    for arguments, message in REFUSED:
        result = gptlite("sample", *arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert result.err.splitlines()[-1].startswith(f"error: {message}")


def test_log_probabilities_add_up_over_all_that_could_follow(gptlite, trained):
    characters = sorted(set(Path("story.txt").read_text()))
    arguments = [word for character in characters for word in ("--logprob", character)]
    judged = json_lines(gptlite("sample", "--prompt", "the ", "--json", *arguments))
    # All but end-of-text, which a single document never shows.
    assert 0.98 < sum(math.exp(line["logprob"]) for line in judged) <= 1 + 1e-6


def test_a_terminal_that_is_not_utf_8_shows_question_marks_and_no_traceback(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit("na\u00efve \u65e5\n")
    assert raw.getvalue() == b"na?ve ?\n"


@pytest.mark.parametrize("command", [["sample"], ["sample", "--beams", "2"], ["eval"], ["eval", "--per-token"]])
def test_a_model_that_is_not_finite_is_refused_by_every_command(gptlite, trained, command, monkeypatch):
    read = Checkpoint.read_model

    def broken(checkpoint):
        weights = read(checkpoint)
        weights["transformer.h.0.attn.c_proj.weight"][3, 3] = math.nan
        return weights

    monkeypatch.setattr(Checkpoint, "read_model", broken)
    result = gptlite(*command)
    assert (result.code, result.out) == (2, "")
    assert "blocks.0.attn.proj.weight = not finite: the model is broken; choose another checkpoint" in result.err

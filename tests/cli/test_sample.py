"""`gptlite sample`: prompts, output, and refused options."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from gptlite.cli.terminal import emit


def json_lines(result) -> list[dict]:
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def type_in(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"))


def test_prompts_come_from_command_line_standard_input_and_files_and_do_not_affect_each_other(
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
    heads = [f"--- {i} of 2\n" for i in (1, 2)]
    assert plain.out == "".join(head + text for head, text in zip(heads, texts, strict=True))


def test_json_has_token_ids_logprobs_and_finish_reason(gptlite, trained):
    [line] = json_lines(gptlite("sample", "--prompt", "the ", "--max-new-tokens", "9", "--json", "--explain"))
    assert (line["finish_reason"], len(line["token_ids"]), len(line["text"])) == ("length", 9, 9)
    [scored] = json_lines(gptlite("sample", "--prompt", "the ", "--logprob", line["text"], "--json"))
    assert scored["logprobs"] == pytest.approx(line["logprobs"], abs=1e-5)
    assert scored["logprob"] == pytest.approx(sum(line["logprobs"]), abs=1e-4)
    for chosen, logprob, top_logprobs in zip(line["token_ids"], line["logprobs"], line["top_logprobs"], strict=True):
        assert len(top_logprobs) == 5
        assert top_logprobs == sorted(top_logprobs, key=lambda pair: -pair[1])
        assert dict(top_logprobs).get(chosen, logprob) == logprob


def test_explain_shows_each_token_among_the_likeliest_and_then_the_text(gptlite, trained):
    text = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "6").out
    explained = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "6", "--explain").out
    assert explained.endswith(text)
    assert explained.count("\ntoken ") == 6
    chosen = [line for line in explained.splitlines() if line.startswith("  >")]
    assert "the " + "".join(json.loads(line[4 : line.rindex('"') + 1]) for line in chosen) + "\n" == text


def test_streamed_whole_and_saved_text_are_the_same(gptlite, trained):
    streamed = gptlite("sample", "--prompt", "the ", "-n", "2", "--max-new-tokens", "30").out
    Path("written.txt").write_text("something old")
    silent = gptlite("sample", "--prompt", "the ", "-n", "2", "--max-new-tokens", "30", "--out", "written.txt")
    assert (silent.code, silent.out) == (0, "")
    assert Path("written.txt").read_text() == streamed


def test_beams_come_best_first_with_the_logprobs_that_logprob_gives(gptlite, trained):
    arguments = ("sample", "--prompt", "the ", "--beams", "4", "-n", "3", "--max-new-tokens", "12")
    found = json_lines(gptlite(*arguments, "--json"))
    assert [line["rank"] for line in found] == [1, 2, 3]
    assert [line["score"] for line in found] == sorted((line["score"] for line in found), reverse=True)
    scored = json_lines(
        gptlite("sample", "--prompt", "the ", "--json", *(x for line in found for x in ("--logprob", line["text"])))
    )
    for line, other in zip(found, scored, strict=True):
        assert line["logprob"] == pytest.approx(other["logprob"], abs=1e-4)
        assert line["score"] == pytest.approx(line["logprob"] / 12)
    shown = gptlite(*arguments).out
    assert [f"the {line['text']}" in shown for line in found] == [True] * 3
    sums = json_lines(gptlite(*arguments, "--length-penalty", "0", "--stop", "q", "--json"))
    assert sums[0]["score"] == sums[0]["logprob"]


def test_beams_with_explain_write_a_page_of_the_search_that_finds_the_same_texts(gptlite, trained):
    arguments = ("sample", "--prompt", "the ", "--beams", "3", "-n", "3", "--max-new-tokens", "8")
    found = json_lines(gptlite(*arguments, "--json"))
    result = gptlite(*arguments, "--explain")
    assert (result.code, result.out) == (0, "nano-beams.html\n")
    page = Path("nano-beams.html").read_text("utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [len([row for row in step if row[4] is not None]) for step in data["steps"]] == [3] * 7 + [0]
    ids = [data["steps"][i][number][1] for i, number in enumerate(data["best"])]
    assert ids == found[0]["token_ids"]
    for (text, *figures, reason), line in zip(data["found"], found, strict=True):
        assert text.replace("␣", " ") == line["text"]
        assert figures == pytest.approx([line["logprob"], 8, line["score"]], rel=1e-4)
        assert reason == line["finish_reason"]
    assert gptlite(*arguments, "--explain", "--out", "here.html").out == "here.html\n"
    assert Path("here.html").read_text("utf-8") == page


def test_a_length_penalty_is_refused_where_all_texts_are_equally_long(gptlite, trained):
    arguments = ("sample", "--prompt", "the ", "--beams", "2", "--max-new-tokens", "12", "--length-penalty", "0")
    assert gptlite(*arguments).refuses("--length-penalty: no text of this model ends before max_new_tokens")
    for ends in (("--stop", "q"), ("--stop-token", "0")):
        assert gptlite(*arguments, *ends).code == 0
    write_documents = [Path(f"{i}.txt").write_text("the cat sat on the mat.\n" * 9) for i in range(3)]
    assert all(write_documents)
    assert gptlite("train", "-c", "nano.yaml", "--data", "?.txt", "--name", "ends").code == 0
    assert gptlite(*arguments).code == 0  # this model has learned end-of-text


def test_a_context_beyond_block_size_is_for_models_without_learned_positions(gptlite, trained):
    prompt = "the cat sat on the mat. "
    learned = gptlite("sample", "--prompt", prompt, "--context", "32")
    assert learned.refuses("--context: the model has learned the positions of its 16 tokens")
    assert gptlite("train", "-c", "nano.yaml", "--set", "model.position=none", "--name", "free").code == 0
    assert "sees only the last 16" in gptlite("sample", "--prompt", prompt).err
    assert "sees only" not in gptlite("sample", "--prompt", prompt, "--context", "32").err


def test_unknown_characters_are_left_out_only_with_unknown_skip(gptlite, trained):
    skipped = gptlite("sample", "--prompt", "th\u00e9e \u65e5", "--unknown", "skip")
    assert skipped.code == 0
    assert "--prompt: 2 unknown characters left out" in skipped.err
    assert skipped.out == gptlite("sample", "--prompt", "the ").out
    assert gptlite("sample", "--prompt", "the ", "--unknown", "skip").err.count("\n") == 1
    refused = gptlite("sample", "--prompt", "th\u00e9e")
    assert (refused.code, refused.out) == (2, "")
    assert "the tokenizer does not know '\u00e9' (U+00E9)" in refused.err


def test_interactive_mode_answers_each_line_and_goes_on_after_an_error(gptlite, trained, monkeypatch):
    type_in(monkeypatch, "the \n\nna\u00efve\na dog \n")
    result = gptlite("sample", "--interactive", "--max-new-tokens", "20")
    assert result.code == 0
    first = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "20").out
    last = gptlite("sample", "--prompt", "a dog ", "--max-new-tokens", "20").out
    again = gptlite("sample", "--prompt", "the ", "--max-new-tokens", "20", "--seed", "1").out
    assert result.out == f"> {first}> {again}> > {last}> \n"
    assert "error: prompt: the tokenizer does not know '\u00ef' (U+00EF" in result.err


REFUSED = [
    (["--beams", "4", "-t", "0.5"], "--temperature cannot be combined with --beams. Leave one of them out."),
    (["--beams", "4", "--set", "sample.seed=3"], "--set sample.seed=3 cannot be combined with --beams."),
    (["--beams", "4", "--top-k", "5"], "--top-k: sample.top_k is 5, but beams is 4, and beam search does not sample."),
    (["--beams", "4", "-n", "5"], "-n: sample.n is 5, but beam search with 4 beams finds at most 4 texts."),
    (
        ["--beams", "2", "--explain", "--json"],
        "--json cannot be combined with --beams --explain. ",
    ),
    (["--beams", "2", "--explain", "-i"], "--interactive cannot be combined with --beams --explain."),
    (
        ["--beams", "2", "--explain", "-p", "a", "-p", "b"],
        "--beams --explain shows one prompt, and 2 are given. Leave out the others.",
    ),
    (["--beams", "2", "--explain", "--out", "runs"], "--out runs: this is a folder"),
    (["--beams", "100000"], "--beams: sample.beams is 100000, but it must be a whole number >= 1 and <= 64 or null."),
    (["--length-penalty", "2"], "--length-penalty: sample.length_penalty is 2.0, but beams is null"),
    (["--logprob", "x", "--max-new-tokens", "3"], "--max-new-tokens cannot be combined with --logprob."),
    (["-i", "--prompt", "the"], "--prompt cannot be combined with --interactive."),
    (["--min-p", "0"], "--min-p: sample.min_p is 0.0, but it must be a number > 0 and <= 1"),
    (["--repetition-penalty", "0"], "--repetition-penalty: sample.repetition_penalty is 0.0, but it must be"),
    (["--stop-token", "1000"], "--stop-token: 1000 is not a token id. Ids are from 0 to"),
    (["--prompt-file", "gone.txt"], "--prompt-file gone.txt: there is no such file."),
    (["--prompt-file", "runs"], "--prompt-file runs: this is a folder, not a text file."),
    (["--prompt-file", "latin.txt"], "--prompt-file latin.txt"),
    (["--out", "no/such/folder/x.txt"], "--out no/such/folder/x.txt: there is no folder no/such/folder"),
    (["--out", "runs"], "--out runs: this is a folder"),
    (["--out", ""], "--out .: this is a folder"),
    (["-t", "0", "--top-k", "5"], "--top-k cannot be combined with temperature 0."),
    (
        ["--beams", "2", "--length-penalty", "1e6"],
        "--length-penalty: sample.length_penalty is 1000000.0, but it must be",
    ),
    (["--logprob", "na\u00efve"], "--logprob: the tokenizer does not know '\u00ef' (U+00EF"),
]


def test_options_without_effect_and_bad_values_are_refused(gptlite, trained):
    Path("latin.txt").write_bytes(b"t\xe9")
    for arguments, message in REFUSED:
        result = gptlite("sample", *arguments)
        assert (result.code, result.out) == (2, ""), arguments
        assert result.err.splitlines()[-1].startswith(f"error: {message}")


def test_a_terminal_that_is_not_utf_8_shows_question_marks(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit("na\u00efve \u65e5\n")
    assert raw.getvalue() == b"na?ve ?\n"

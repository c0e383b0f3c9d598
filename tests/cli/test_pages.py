"""gptlite eval --attention and --per-token: a page, or one line that says why not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import gptlite as package
from gptlite.cli.eval import pages
from gptlite.inference.inspect import attention_steps


def data_of(path: str) -> dict:
    page = Path(path).read_text("utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_the_attention_page_holds_what_the_model_computes_for_the_text(gptlite, trained):
    result = gptlite("eval", "--attention", "the cat sat")
    assert (result.code, result.out) == (0, "nano-attention.html\n")
    data, model = data_of("nano-attention.html"), package.load("runs/nano")
    (layer,) = attention_steps(model.gpt, model.encode("the cat sat"))
    assert "".join(data["tokens"]) == "the␣cat␣sat"
    for head in range(2):
        for name in ("scores", "weights", "values", "heads"):
            np.testing.assert_allclose(data["layers"][0][head][name], getattr(layer, name)[head], rtol=5e-3)
    assert data["positions"]["shape"] == [16, 16]


def test_the_per_token_page_holds_the_score_of_a_file_token_by_token(gptlite, trained):
    Path("some.txt").write_text("the cat sat on\nthe mat. the dog ran")
    result = gptlite("eval", "nano", "--per-token", "--file", "some.txt", "--out", "here.html")
    assert (result.code, result.out) == (0, "here.html\n")
    tokens = data_of("here.html")["tokens"]
    score = package.load("runs/nano").score("the cat sat on\nthe mat. the dog ran")
    assert "".join(text for text, *_ in tokens) == "he cat sat on\nthe mat. the dog ran"
    assert sum(bits for _, _, bits, *_ in tokens) / len(tokens) == pytest.approx(score.bits_per_byte, rel=1e-3)
    assert f"<b>{score.bits_per_byte:.4f}</b> bits per byte" in Path("here.html").read_text("utf-8")


def test_of_a_long_text_the_page_shows_the_first_tokens_and_says_so(gptlite, trained, monkeypatch):
    monkeypatch.setattr(pages, "MOST_TOKENS", 50)
    result = gptlite("eval", "--per-token")
    assert result.code == 0
    assert re.search(r"text = [\d,]+ tokens: the page shows the first 50", result.err)
    assert len(data_of("nano-per-token.html")["tokens"]) == 50
    assert "These are the first 50 of " in Path("nano-per-token.html").read_text("utf-8")


def error_of(result) -> str:
    """The one line of a refused page, of which nothing is written."""
    (error,) = (line for line in result.err.splitlines() if line.startswith("error: "))
    assert result.code == 2
    assert not list(Path().glob("*.html"))
    return error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attention", "a", "--per-token"], "--attention = given: not with --per-token"),
        (["--attention", "a", "--file", "story.txt"], "--file = given: not with --attention"),
        (["--per-token", "--json"], "--json = given: not with --per-token"),
        (["--out", "a.html"], "--out = given: only with --by-position, --per-token, --attention; leave it out"),
        (["a", "b", "--attention", "x"], "RUN = 2 of them: the page of --attention shows one"),
        (["--per-token", "-f", "a", "-f", "b"], "--file = 2 of them: the page of --per-token shows one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(gptlite, arguments, message):
    assert message in error_of(gptlite("eval", *arguments))


def test_a_text_that_makes_no_page_is_refused_with_the_numbers(gptlite, trained):
    Path("one.txt").write_text("t")
    for arguments, message in (
        (["--attention", "the cat sat on the mat"], "--attention = 22 tokens: at least 1 and at most 16, the model's"),
        (["--attention", ""], "--attention = 0 tokens: at least 1"),
        (["--attention", "ZZZ"], "--attention: 'Z' (U+005A, first at character 0) is unknown"),
        (["--per-token", "--file", "one.txt"], "one.txt: the text has 1 token, but scoring needs at least 2."),
    ):
        assert message in error_of(gptlite("eval", *arguments))


def test_a_model_with_room_for_more_than_a_page_says_what_the_page_holds(gptlite):
    sets = ["model.block_size=128", "train.max_steps=1", "train.warmup_steps=0"]
    assert gptlite("train", "-c", "nano.yaml", *(word for value in sets for word in ("--set", value))).code == 0
    error = error_of(gptlite("eval", "--attention", "the cat " * 13))
    assert "--attention = 104 tokens: at least 1 and at most 96, what a page has room for; shorten" in error

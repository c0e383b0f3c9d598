"""`gptlite eval --attention`, `--follow` and `--per-token`: the pages, and the errors."""

from __future__ import annotations

import json
import math
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


def test_the_attention_page_has_the_numbers_of_the_model(gptlite, trained):
    result = gptlite("eval", "--attention", "the cat sat")
    assert (result.code, result.out) == (0, "nano-attention.html\n")
    data, model = data_of("nano-attention.html"), package.load("runs/nano")
    (layer,) = attention_steps(model.gpt, model.encode("the cat sat"))
    assert "".join(data["tokens"]) == "the␣cat␣sat"
    for head in range(2):
        for name in ("scores", "weights", "values", "heads"):
            np.testing.assert_allclose(data["layers"][0][head][name], getattr(layer, name)[head], rtol=5e-3)
    assert data["positions"]["shape"] == [16, 16]


def test_the_follow_page_has_the_probabilities_that_the_model_gives(gptlite, trained):
    result = gptlite("eval", "--follow", "the cat sat")
    assert (result.code, result.out) == (0, "nano-follow.html\n")
    data, model = data_of("nano-follow.html"), package.load("runs/nano")
    assert "".join(data["tokens"]) == "the␣cat␣sat"
    (steps,) = data["layers"]
    assert [len(step["lengths"]) for step in steps if step["kind"] == "residual"] == [3, 3]
    candidates = [(text, p) for text, _, p in data["candidates"] if len(text) == 1 and text.isalpha()]
    assert len(candidates) > 3
    for text, probability in candidates:
        (log_p,) = model.logprobs("the cat sat", text)
        assert probability == pytest.approx(math.exp(log_p), rel=5e-3)


def test_the_per_token_page_has_the_score_of_every_token(gptlite, trained):
    Path("some.txt").write_text("the cat sat on\nthe mat. the dog ran")
    result = gptlite("eval", "nano", "--per-token", "--file", "some.txt", "--out", "here.html")
    assert (result.code, result.out) == (0, "here.html\n")
    tokens = data_of("here.html")["tokens"]
    score = package.load("runs/nano").score("the cat sat on\nthe mat. the dog ran")
    assert "".join(text for text, *_ in tokens) == "he cat sat on\nthe mat. the dog ran"
    assert sum(bits for _, _, bits, *_ in tokens) / len(tokens) == pytest.approx(score.bits_per_byte, rel=1e-3)
    assert f"<b>{score.bits_per_byte:.4f}</b> bits per byte" in Path("here.html").read_text("utf-8")


def test_the_per_token_page_of_a_long_text_has_the_first_tokens_and_says_so(gptlite, trained, monkeypatch):
    monkeypatch.setattr(pages, "MOST_TOKENS", 50)
    result = gptlite("eval", "--per-token")
    assert result.code == 0
    assert len(data_of("nano-per-token.html")["tokens"]) == 50
    assert "These are the first 50 of " in Path("nano-per-token.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attention", "a", "--per-token"], "--attention cannot be combined with --per-token. "),
        (["--attention", "a", "--file", "story.txt"], "--file cannot be combined with --attention. "),
        (["nano", "b", "--attention", "x"], "--attention shows one text of one run. Leave out the others."),
        (["--per-token", "-f", "a", "-f", "b"], "--per-token shows one text of one run. Leave out the others."),
        (
            ["--attention", "cat " * 8],
            "--attention: the text has 32 tokens. At most 16 are possible, the model's block",
        ),
        (["--attention", ""], "--attention: the text is empty."),
        (["--attention", "ZZZ"], "--attention: the tokenizer does not know 'Z' (U+005A): it knows"),
        (["--per-token", "--file", "one.txt"], "one.txt: the text has 1 token, but scoring needs at least 2."),
    ],
)
def test_what_no_page_can_show_is_refused_and_nothing_is_written(gptlite, trained, arguments, message):
    Path("one.txt").write_text("t")
    result = gptlite("eval", *arguments)
    assert result.refuses(f"error: {message}")
    assert not list(Path().glob("*.html"))


def test_a_text_that_fits_the_model_but_not_the_page_is_refused(gptlite):
    sets = ["model.block_size=128", "train.max_steps=1", "train.warmup_steps=0"]
    assert gptlite("train", "-c", "nano.yaml", *(word for value in sets for word in ("--set", value))).code == 0
    assert gptlite("eval", "--attention", "the cat " * 13).refuses(
        "--attention: the text has 104 tokens. At most 96 are possible, as many as a page can show."
    )

"""The HTML pages contain the numbers that they were given, and use nothing from outside."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import numpy_gpt
import pytest
from sample_pages import NASTY, beams, follow, followed_layer, layer, pages

from gptlite.config.schema import ModelSection
from gptlite.course.explained_beams import Candidate
from gptlite.inference.beam import Hypothesis
from gptlite.views import beams as beams_module
from gptlite.views.attention import attention_page
from gptlite.views.page import rounded, script_safe


class Parsed(HTMLParser):
    """The elements of a page, and the texts of its scripts, as a browser would cut them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data
        else:
            self.text += data

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


@pytest.mark.parametrize("name", ["attention", "beams", "follow", "per_token"])
def test_a_page_uses_nothing_from_outside_and_forbids_it(name):
    page = pages()[name]
    assert not re.search(r"https?:|//\w|\bsrc\s*=|@import|url\(|<link|<iframe|fetch\(|XMLHttp|import\(", page)
    policy = [attrs["content"] for tag, attrs in Parsed(page).elements if tag == "meta" and "http-equiv" in attrs]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]


@pytest.mark.parametrize("name", ["attention", "beams", "follow", "per_token"])
def test_no_text_becomes_html(name):
    page = Parsed(pages()[name])
    assert len(page.scripts) == 2
    assert page.scripts[1].startswith('\n"use strict";')
    assert "nano, <i>step</i> 7" in page.text
    tokens = page.data["tokens"] if "tokens" in page.data else list(page.data["labels"].values())[: len(NASTY)]
    shown = [token if isinstance(token, str) else token[0] for token in tokens]
    blanks = ["\n", "\t"] if name == "per_token" else ["↵", "⇥"]
    assert shown == ["</script><b>", "&", "\"'", "שלום", *blanks, r"\xe6", "$title"]


def test_the_attention_page_holds_the_steps_of_every_layer_and_head():
    layers = [layer(3, 8, 5, seed) for seed in range(2)]
    data = Parsed(attention_page("", NASTY, layers, None, ModelSection(position="none"))).data
    assert data["mask"] == np.tri(8).tolist()
    assert data["positions"] is None
    for given, heads in zip(layers, data["layers"], strict=True):
        assert len(heads) == 3
        for i, head in enumerate(heads):
            for step, digits in {"scores": 4, "weights": 3, "values": 3, "heads": 3}.items():
                np.testing.assert_allclose(head[step], getattr(given, step)[i], rtol=5 * 10.0**-digits)


def test_the_formulas_are_those_of_the_model():
    def shown(scaled: bool, position: str) -> str:
        table = None if position == "none" else np.zeros((8, 4))
        return attention_page(
            "", NASTY, [layer(1, 8, 16)], table, ModelSection(scale_attention=scaled, position=position)
        )

    assert "<msqrt>" in shown(True, "learned")
    assert "d = 16" in shown(True, "learned")
    assert "<msqrt>" not in shown(False, "learned")
    assert "scale_attention: false" in shown(False, "learned")
    assert "position: none" in shown(True, "none")
    assert "softmax</mtext><mo>(</mo><mtext>mask" in shown(True, "learned")


@pytest.mark.parametrize("scale_embeddings", [False, True])
def test_sinusoids_are_explained_and_embeddings_are_shown_with_their_factor(scale_embeddings):
    model = ModelSection(position="sinusoidal", scale_embeddings=scale_embeddings, n_embd=4)
    page = attention_page("", NASTY, [layer(1, 8, 4)], numpy_gpt.sinusoids(8, 4), model)
    assert "10000^(2i/C), in the size of token embeddings. It" in page
    assert ("<msqrt><mi>C</mi></msqrt><msub><mi>E</mi>" in page) is model.scale_embeddings


def test_every_nth_row_and_column_of_a_large_position_table_is_shown():
    table = np.arange(300 * 600).reshape(300, 600) / 1e6
    page = attention_page("", NASTY, [layer(1, 8, 4)], table, ModelSection())
    shown = Parsed(page).data["positions"]
    assert shown["shape"] == [300, 600]
    assert shown["every"] == [3, 3]
    np.testing.assert_allclose(shown["rows"], table[::3, ::3], rtol=5e-3)
    assert "one position in 3 and one channel in 3" in page


def test_the_follow_page_holds_the_numbers_that_it_was_given():
    page = Parsed(follow())
    names = ["LayerNorm 1", "Query, key and value", "Scores and softmax", "The heads and Wᴼ", "x + attention"]
    assert [step["name"] for step in page.data["layers"][1]] == [
        *names,
        *["LayerNorm 2", "Feed-forward", "x + feed-forward"],
    ]
    for step, given in zip(page.data["layers"][1], followed_layer(1), strict=True):
        for name, numbers in given.vectors.items():
            np.testing.assert_allclose(step[name], numbers, rtol=5e-3, atol=1e-4)
    added, feed_forward = (page.data["layers"][1][i] for i in (4, 6))
    lengths = [math.sqrt(sum(x * x for x in added[name])) for name in ("before", "added", "after")]
    np.testing.assert_allclose(added["lengths"], lengths, rtol=5e-3)
    assert "25% of the 16 hidden numbers are above 0" in feed_forward["about"]
    assert page.data["candidates"][:3] == [
        ["end of text", pytest.approx(math.log(0.4), rel=1e-3), 0.4],
        ["no text", pytest.approx(math.log(0.2), rel=1e-3), 0.2],
        ["$title", pytest.approx(math.log(0.1), rel=1e-3), 0.1],
    ]
    assert "The row of position 8" in page.text
    assert "Every sublayer adds" in page.text


def test_the_follow_page_names_what_the_model_lacks():
    text = Parsed(follow(position="none", scale_embeddings=True)).text
    assert "no position table (position: none)" in text
    assert "times √C (scale_embeddings)" in text
    assert "not scaled (scale_attention: false)" in follow(scale_attention=False)
    without = Parsed(follow(variant="no_residual", init="gpt2"))
    assert [step["name"] for step in without.data["layers"][0] if step["kind"] == "residual"] == [
        *["x = attention", "x = feed-forward"]
    ]
    assert "Every sublayer adds" not in without.text


def test_the_beams_page_holds_the_candidates_the_texts_and_the_path_of_the_best():
    page = Parsed(beams())
    assert [len(step) for step in page.data["steps"]] == [4, 5]
    assert page.data["steps"][0][1] == [0, 7, -8.0, -8.0, 1, None]
    assert page.data["steps"][1][4] == [1, 8, -0.125, -8.125, None, "end of text"]
    assert page.data["best"] == [0, 0]
    assert page.data["labels"]["8"] == "end of text"
    # The token that ended the second text counts in its length.
    assert page.data["found"] == [["&↵", -2.5, 2, -1.25, "length"], ["$title", -8.125, 2, -4.0625, "end of text"]]
    assert "It keeps 2 texts" in page.text
    assert "The search took 2 steps, the most tokens that were asked for (max_new_tokens)." in page.text
    assert Parsed(beams("")).data["prompt"] == "start of text"


def test_the_path_of_a_text_that_ended_goes_to_the_token_that_ended_it():
    dead = Candidate(0, 2, -3.0, -3.0, None, "stop token")
    steps = [[Candidate(0, 1, -1.0, -1.0, 0, None), dead], [Candidate(0, 2, -0.5, -1.5, None, "stop token")]]
    assert beams_module.path_of(Hypothesis((1,), -1.5, -0.75, "stop token"), steps) == [0, 0]
    assert beams_module.path_of(Hypothesis((), -3.0, -3.0, "stop token"), steps) == [1]


def test_the_page_of_a_long_search_has_the_first_steps_and_says_so(monkeypatch):
    monkeypatch.setattr(beams_module, "MOST_CANDIDATES", 8)
    page = Parsed(beams())
    assert [len(step) for step in page.data["steps"]] == [4]
    assert page.data["best"] == [0]
    assert "The search took 2 steps, the most tokens" in page.text
    assert "The page shows the first 1, to stay small." in page.text


def test_the_per_token_page_holds_bits_ranks_and_alternatives():
    page = Parsed(pages()["per_token"])
    bits, ids = [row[2] for row in page.data["tokens"]], [row[1] for row in page.data["tokens"]]
    assert (ids, bits) == (list(range(8)), list(range(8)))
    assert [row[3] for row in page.data["tokens"]] == list(range(1, 9))
    assert page.data["tokens"][0][4] == [[3, 0.75], [6, 0.0156]]
    assert page.data["labels"]["3"] == "שלום"
    assert page.data["labels"]["4"] == "↵"
    assert page.data["context"] == {"text": "\n", "id": 4}
    assert page.data["peaks"] == list(range(7, -1, -1))
    # 28 bits over 12 + 1 + 2 + 8 + 1 + 1 + 1 + 6 = 32 bytes and 8 tokens
    assert "0.8750 bits per byte" in page.text
    assert "3.500 bits per token" in page.text
    assert "32 bytes" in page.text


def test_json_inside_a_script_does_not_end_it_and_reads_back():
    data = {"text": "</script><!--<b>&amp;\u2028\ud800\"'\\"}
    written = script_safe(data)
    assert "<" not in written
    assert written.isascii()
    assert json.loads(written) == data


def test_numbers_keep_four_significant_digits():
    assert rounded(np.array([[1.23456, -0.000123456], [123456.0, 0.0]])) == [[1.235, -0.0001235], [123500.0, 0.0]]
    assert rounded(np.array([2 / 3], np.float32), 3) == [0.667]

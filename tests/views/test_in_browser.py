"""The scripts of the pages in a headless Chromium: click, hover, keyboard. Skipped where none is installed."""

from __future__ import annotations

import browser as harness
import pytest
from sample_pages import pages


@pytest.fixture(scope="module")
def browser() -> str:
    return harness.find_browser()


def seen_on(browser, folder, name, actions):
    return harness.seen_on(browser, folder, pages()[name], actions)


def test_layers_and_heads_of_the_follow_page_are_chosen_by_click_and_key(browser, tmp_path):
    actions = """
      const states = [one("#which").textContent];
      const note = () => states.push(one("#which").textContent + ": " + words("[aria-pressed=true]"));
      document.querySelectorAll("#heads button")[1].click(); note();
      press("l"); note();
      press("l"); note();
      press("H", { shiftKey: true }); note();
      press("h", { ctrlKey: true }); note();
      return states;
    """
    assert seen_on(browser, tmp_path, "follow", actions) == [
        "Layer 1, head 1",
        "Layer 1, head 2: layer 1,head 2",
        "Layer 2, head 2: layer 2,head 2",
        "Layer 1, head 2: layer 1,head 2",
        "Layer 1, head 1: layer 1,head 1",
        "Layer 1, head 1: layer 1,head 1",
    ]


def test_the_follow_page_shows_the_chosen_numbers_and_the_one_under_the_pointer(browser, tmp_path):
    actions = """
      press("l"); press("h");
      const key = document.querySelectorAll("[data-kind=projections] canvas")[1];
      point(key, "pointermove", 0.75);
      const tips = [one("#tip").textContent, one("#tip").hidden];
      point(key, "pointerleave", 0.75);
      return {
        tips, hidden: one("#tip").hidden, key: data.layers[1][1].key[1][1],
        scores: words("[data-kind=scores] .rows .row > :nth-child(2)").slice(1), given: data.layers[1][2].scores[1],
        mean: one("[data-kind=norm] .mean b").textContent, ofNorm: data.layers[1][0].mean,
        lengths: words("#lengths .row > :nth-child(1)"), candidates: words("#candidates .token"),
        network: performance.getEntriesByType("resource").length,
      };
    """
    seen = seen_on(browser, tmp_path, "follow", actions)
    text, was_hidden = seen["tips"]
    assert text.startswith("key, number 2 of 2: ")
    assert number(text.rpartition(" ")[2]) == pytest.approx(seen["key"], rel=5e-3)
    assert (was_hidden, seen["hidden"]) == (False, True)
    assert [number(score) for score in seen["scores"]] == pytest.approx(seen["given"], rel=5e-3)
    assert number(seen["mean"]) == pytest.approx(seen["ofNorm"], rel=5e-3)
    added = [f"layer {layer}, {what}" for layer in (1, 2) for what in ("attention", "feed-forward")]
    assert seen["lengths"] == ["embedding", *(word for name in added for word in (name, "x"))]
    assert seen["candidates"][:3] == ["end of text", "no text", "$title"]
    assert seen["network"] == 0


def test_the_attention_page_is_driven_by_click_hover_and_key(browser, tmp_path):
    actions = """
      const states = [];
      document.querySelectorAll("#text button")[2].click(); states.push(location.hash);
      press("h"); states.push(location.hash);
      press("T", { shiftKey: true }); states.push(location.hash);
      point(one("#weights canvas"), "pointermove", 0.01, 0.99);
      return [...states, words("#tip div").slice(0, 2), words("#parts .token").length];
    """
    assert seen_on(browser, tmp_path, "attention", actions) == [
        "#1-1-3",
        "#1-2-3",
        "#1-2-2",
        ["query: $title (8)", "key: </script><b> (1)"],
        2,
    ]


def test_the_beams_page_is_driven_by_click_and_key(browser, tmp_path):
    actions = """
      const all = (parent, selector) => [...parent.querySelectorAll(selector)];
      const rows = () => all(document, "#beams article").map(beam => [
        beam.querySelector("h3").textContent,
        ...all(beam, ".candidate:not(.heads)").map(row => all(row, ":scope > *").map(cell => cell.textContent)),
      ]);
      const states = [one("#which").textContent];
      const note = () => states.push(one("#which").textContent + ": " + words("[aria-pressed=true]"));
      press("ArrowRight"); note();
      press("ArrowRight"); note();
      const second = rows();
      press("ArrowLeft", { ctrlKey: true }); note();
      press("ArrowLeft"); note();
      document.querySelectorAll("#tree button")[1].click(); note();
      return {
        states, second, best: words(".node.on .token"), ended: words(".node.ended .token"), dead: words(".node.dead"),
        lines: document.querySelectorAll("#tree path").length, found: words("#found tbody td"),
      };
    """
    seen = seen_on(browser, tmp_path, "beams", actions)
    assert seen["states"] == [
        "Step 1 of 2",
        *["Step 2 of 2: step 2"] * 3,
        "Step 1 of 2: step 1",
        "Step 2 of 2: step 2",
    ]
    first, second = seen["second"]
    assert first[:2] == [
        "</h1><b>&beam 1, sum \u22122.000",
        ["↵", "\u22120.500", "", "\u22122.500", "ended: length"],
    ]
    assert [row[-1] for row in first[2:]] == ["pruned", "pruned"]
    assert second[2] == ["end of text", "\u22120.125", "", "\u22128.125", "ended: end of text"]
    assert seen["best"] == ["</h1><b>", "&", "↵"]
    assert (seen["ended"], seen["dead"], seen["lines"]) == (["↵", "end of text"], [], 4)
    assert seen["found"][:6] == ["1", "&↵", "\u22122.500", "2", "\u22121.2500", "length"]


def test_the_per_token_page_is_driven_by_hover_and_key(browser, tmp_path):
    actions = """
      const facts = () => words("#facts td").filter((_, i) => i % 2)[0];
      const states = [facts()];
      point(one("[data-i='2']"), "pointerover", 0.5); states.push(facts());
      press("ArrowRight"); states.push(facts());
      press("ArrowLeft"); states.push(facts());
      return states;
    """
    bits = [f"{n:.2f} bits" for n in (7, 2, 3, 2)]
    assert seen_on(browser, tmp_path, "per_token", actions) == bits


def number(text: str) -> float:
    return float(text.replace("\u2212", "-"))

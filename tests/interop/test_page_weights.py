"""The page that writes: rounding by hand, and its script in Chromium against the model with the same weights."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import browser as harness
import numpy as np
import pytest
import torch
from random_gpt import language_model, random_gpt

from gptlite.errors import ConfigError
from gptlite.interop.page_weights import page_data, round_weights
from gptlite.tokenizers.bpe import PATTERNS, train_bpe
from gptlite.tokenizers.char import CharTokenizer
from gptlite.views.page import writer_page

TEXT = "Der Zug fährt ab. 東京は雨です。 naïve café, x2 = 10;\n\treturn [i for i in range(100)]"
TEXT += "  🙂\r\n\r\n'll don't\u00a0\ufeff\x85 "
CHARACTERS = "".join(sorted(set(TEXT)))
TOKENIZERS = {
    "char": lambda: CharTokenizer(CHARACTERS),
    **{name: lambda pattern=pattern: train_bpe([TEXT * 20], 320, pattern) for name, pattern in PATTERNS.items()},
}
PROMPTS = ["", "Der Zug", "東京は", "🙂 café", "return [", "don't\u00a0", "x2 = 10;\n\t"]


def model_of(name, **values):
    tokenizer = TOKENIZERS[name]()
    sizes = {"n_embd": 16, "block_size": 24, "dtype": torch.float32, "spread": 0.3}
    return language_model(random_gpt(tokenizer.vocab_size, **(sizes | values)), tokenizer)


def test_weights_are_rounded_to_halves_or_to_whole_numbers_of_a_row():
    model = model_of("char", bias=True).gpt
    up, exact = model.blocks[0].mlp.up.weight, model.blocks[0].mlp.up.bias
    for kind in ("f16", "q8_0"):
        rounded, tensors = round_weights(model, kind)
        stored = {each["name"]: each for each in tensors}["h.0.mlp.c_fc.weight"]
        assert stored["shape"] == [64, 16]
        data = base64.b64decode(stored["data"])
        if kind == "f16":
            expected = up.half().float()
            assert data == up.half().numpy().tobytes()
        else:
            scale = up.abs().amax(1, keepdim=True) / 127
            expected = torch.round(up / scale) * scale
            assert np.frombuffer(data, np.int8).reshape(64, 16).max(1).max() == 127
        torch.testing.assert_close(rounded.blocks[0].mlp.up.weight, expected, rtol=1e-6, atol=0)
        assert torch.equal(rounded.blocks[0].mlp.up.bias, exact)
        assert torch.equal(model.blocks[0].mlp.up.weight, up)  # the model itself stays as it is


def test_what_a_page_cannot_hold_is_refused():
    other = TOKENIZERS["gpt2"]()
    other.pattern = r"\S+|\s+"
    with pytest.raises(ConfigError, match=r"tokenizer\.kind=bpe or char"):
        page_data(language_model(random_gpt(other.vocab_size, dtype=torch.float32), other), "f16", "")
    with pytest.raises(ConfigError, match="at most 20,000,000"):
        page_data(model_of("char", n_embd=512, n_layer=8), "f16", "")


@pytest.fixture(scope="module")
def browser():
    return harness.find_browser()


def on_page(browser, folder, model, kind, actions):
    """What the actions see on a page of the model, and the model with the same weights."""
    data, rounded = page_data(model, kind, "")
    page = writer_page("a & </title>", "about </p>", model.gpt.n_parameters(), data)
    return harness.seen_on(browser, folder, page, actions), replace(model, gpt=rounded)


@pytest.mark.parametrize(
    ("tokenizer", "kind", "values"),
    [
        ("char", "f16", {"activation": "gelu", "bias": True, "tie_weights": False}),
        ("gpt2", "q8_0", {"scale_attention": False, "position": "sinusoidal"}),
        ("gptlite", "f16", {"position": "none", "n_head": 4}),
    ],
)
def test_the_page_writes_as_gptlite_does_with_the_same_weights(browser, tmp_path, tokenizer, kind, values):
    model = model_of(tokenizer, **values)
    actions = f"""
      const settings = {{ temperature: 0, top_p: 1, seed: 1, until: "", length: 60 }};  // past the context of 24
      return {json.dumps(PROMPTS)}.map(prompt => [...write(prompt, settings)].at(-1)[0]);
    """
    texts, rounded = on_page(browser, tmp_path, model, kind, actions)
    assert texts == [rounded.generate(prompt, temperature=0, max_new_tokens=60) for prompt in PROMPTS]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_page_divides_text_into_the_same_ids(browser, tmp_path, name):
    model, rng = model_of(name), np.random.default_rng(0)
    letters = list(CHARACTERS) if name == "char" else [*CHARACTERS, *map(chr, rng.integers(1, 0x3000, 3000))]
    texts = ["".join(rng.choice(letters, n)) for n in rng.integers(1, 60, 2000)]
    ids, _ = on_page(
        browser, tmp_path, model, "f16", f"return {json.dumps(texts)}.map(text => tokenizer.encode(text).ids)"
    )
    assert ids == [model.tokenizer.encode(text).tolist() for text in texts]


def test_the_page_draws_as_often_as_the_model_expects_and_keeps_to_top_p(browser, tmp_path):
    actions = """
      const logits = Float32Array.from([1, 0.5, 0.25, 0, 2], Math.log), counts = [{}, {}];
      for (let n = 0; n < 7500; n++) [1, 0.7].forEach((top_p, i) => {
        const id = choose(logits, { temperature: 1, top_p }, uniform(5, n));
        counts[i][id] = (counts[i][id] ?? 0) + 1;
      });
      return { counts, cold: choose(logits, { temperature: 0.001, top_p: 1 }, 0.999) };
    """
    seen, _ = on_page(browser, tmp_path, model_of("char"), "f16", actions)
    every, likely = seen["counts"]
    assert every == {
        i: pytest.approx(7500 * p, abs=150) for i, p in {"0": 0.2667, "1": 0.1333, "2": 0.0667, "4": 0.5333}.items()
    }
    assert likely == {"0": pytest.approx(2500, abs=150), "4": pytest.approx(5000, abs=150)}
    assert seen["cold"] == 4


def test_the_page_says_what_is_wrong_and_shows_no_markup_of_strangers(browser, tmp_path):
    actions = """
      const settings = { temperature: 0, top_p: 1, seed: 1, length: 5, until: "" };
      const stopped = [...write("Der", { ...settings, length: 40, until: [...write("Der", settings)].at(-1)[0][2] })];
      let message;
      try { [...write("<b>z", settings)]; } catch (error) { message = error.message; }
      one("#prompt").value = "q<i>"; one("#write").click();
      return {
        message, shown: one("#state").textContent, elements: document.querySelectorAll("i, b").length,
        name: one("h1").textContent, about: one(".about").textContent, n: stopped.at(-1)[0].length,
        network: performance.getEntriesByType("resource").length,
      };
    """
    seen, _ = on_page(browser, tmp_path, model_of("char"), "f16", actions)
    assert seen["message"] == "The model has never seen < > z: take it out of the beginning."
    assert seen["shown"] == "The model has never seen q < >: take it out of the beginning."
    assert (seen["name"], seen["about"]) == ("a & </title>", "about </p>")
    assert seen["elements"] == seen["network"] == 0
    assert seen["n"] <= 2

"""Pages of numbers that tests choose, for the tests of their data and of their scripts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gptlite.config.schema import ModelSection
from gptlite.config.training import SampleSection
from gptlite.course.explained_beams import Candidate, ExplainedSearch
from gptlite.course.follow import FollowedToken, Step
from gptlite.inference.beam import Hypothesis
from gptlite.inference.inspect import LayerSteps, TokenScores
from gptlite.views.attention import attention_page
from gptlite.views.beams import beams_page
from gptlite.views.follow import follow_page
from gptlite.views.per_token import per_token_page

NASTY = [b"</script><b>", b"&", b"\"'", "שלום".encode(), b"\n", b"\t", "日".encode()[:1], b"$title"]


def layer(n_head: int, n_tokens: int, head_size: int, seed: int = 0) -> LayerSteps:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n_head, n_tokens, n_tokens)).astype(np.float32)
    masked = np.where(np.tri(n_tokens, dtype=bool), scores, -np.inf)
    weights = np.exp(masked) / np.exp(masked).sum(-1, keepdims=True)
    values = rng.normal(size=(n_head, n_tokens, head_size)).astype(np.float32)
    return LayerSteps(scores, masked, weights, values, weights @ values)


def token_scores() -> TokenScores:
    return TokenScores(
        np.arange(len(NASTY)),
        np.arange(len(NASTY)) * math.log(2),  # 0, 1, 2, ... bits
        np.arange(1, len(NASTY) + 1),
        np.tile([3, 6], (len(NASTY), 1)),
        np.tile([0.75, 0.015625], (len(NASTY), 1)),
    )


def followed_layer(seed: int, n_tokens: int = 8) -> list[Step]:
    """The steps of a layer of random numbers, of width 4 with two heads."""
    rng = np.random.default_rng(seed)
    x, attention, feed_forward = rng.normal(size=(3, 4))
    scores = rng.normal(size=(2, n_tokens))
    query, key, value, heads = rng.normal(size=(4, 2, 2))

    def norm(number: str, before: np.ndarray) -> Step:
        after = (before - before.mean()) / before.std()
        figures = {"mean": before.mean(), "deviation": before.std()}
        return Step("norm", number, {"before": before, **figures, "after": after})

    def residual(name: str, before: np.ndarray, added: np.ndarray) -> Step:
        return Step("residual", name, {"before": before, "added": added, "after": before + added})

    return [
        norm("1", x),
        Step("projections", "attention", {"query": query, "key": key, "value": value}),
        Step("scores", "attention", {"scores": scores, "weights": np.exp(scores) / np.exp(scores).sum(-1)[:, None]}),
        Step("mixed", "attention", {"heads": heads, "output": attention}),
        residual("attention", x, attention),
        norm("2", x + attention),
        Step("feed-forward", "feed-forward", {"hidden": np.array([1.0, 0.0, 0.0, -2.0] * 4), "output": feed_forward}),
        residual("feed-forward", x + attention, feed_forward),
    ]


def follow(**values: Any) -> str:
    """The page of the last of the tokens NASTY in a model of two layers; id 8 is end-of-text, and id 9 has no text."""
    model = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 4, **values})
    logits = np.log([0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.09, 0.1, 0.4, 0.2])
    layers, x = [followed_layer(seed) for seed in range(2)], np.ones(4)
    token = FollowedToken(x, None if model.position == "none" else x, x, layers, None, logits)
    return follow_page("nano, <i>step</i> 7", range(8), [*NASTY, b"", b""], 8, token, model)


def beams(prompt: str = "</h1><b>") -> str:
    """The page of two beams: "&" and then the newline is the best text, and end-of-text, id 8, ends the second."""
    first = [Candidate(0, token, -1.0 - token, -1.0 - token, i, None) for i, token in enumerate([1, 7])]
    steps = [
        [*first, Candidate(0, 0, -9.0, -9.0, None, None), Candidate(0, 5, -9.5, -9.5, None, None)],
        [
            Candidate(0, 4, -0.5, -2.5, None, "length"),
            Candidate(0, 3, -4.0, -6.0, None, None),
            Candidate(0, 6, -5.0, -7.0, None, None),
            Candidate(1, 2, -0.25, -8.25, None, None),
            Candidate(1, 8, -0.125, -8.125, None, "end of text"),
        ],
    ]
    found = [
        ("&\n", Hypothesis((1, 4), -2.5, -1.25, "length")),
        ("$title", Hypothesis((7,), -8.125, -4.0625, "end of text")),
    ]
    params = SampleSection(beams=2, max_new_tokens=2)
    return beams_page("nano, <i>step</i> 7", prompt, [*NASTY, b"", b""], 8, ExplainedSearch(found, steps), params)


def pages() -> dict[str, str]:
    title, table = "nano, <i>step</i> 7", np.zeros((8, 4))
    return {
        "attention": attention_page(title, NASTY, [layer(2, 8, 4)], table, ModelSection()),
        "beams": beams(),
        "follow": follow(),
        "per_token": per_token_page(title, token_scores(), [*NASTY, b""], 8, block_size=64, first_id=4, n_all=8),
    }

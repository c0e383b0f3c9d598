"""The HTML page that follows one token through every layer, from its embedding to the logits of the token after it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gptlite.config.schema import ModelSection
from gptlite.tokenizers.readable import label, labels
from gptlite.views.page import page, rounded

if TYPE_CHECKING:
    from gptlite.course.follow import FollowedToken, LayerOfToken, NormStep

MOST_TOKENS = 96  # rows of scores
CANDIDATES = 10  # next tokens with their logits

SEEN = "Every sublayer adds its output to x; the longer this is beside x, the more it changes x."
NO_RESIDUAL = "This model has no residual connections (model.variant: no_residual): the sublayer's output replaces x."
RESIDUAL = "The residual connection: the sublayer's output is added to x, which is never overwritten."


def follow_page(
    title: str, ids: Sequence[int], pieces: Sequence[bytes], end_id: int, token: FollowedToken, model: ModelSection
) -> str:
    """Return the page. title: a line about model and text. ids: the text's. pieces: the bytes of every id."""
    tokens = [label(pieces[i]) for i in ids]
    probabilities = softmax(token.logits)
    best = np.argsort(-token.logits, kind="stable")[:CANDIDATES].tolist()
    texts = {
        "about": html.escape(title),
        "token": html.escape(tokens[-1]),
        "width": f"{model.n_embd:,}",
        "seen": SEEN if model.variant != "no_residual" else NO_RESIDUAL,
        "next": "A LayerNorm follows each x, and the next sublayer reads its output." if model.norm == "post" else "",
        "scaled": " The embedding is shown times √C (scale_embeddings)." if model.scale_embeddings else "",
        "place": "This model has no position table (position: none)."
        if token.position is None
        else f"The row of position {len(ids)} in the position table is added.",
    }
    data = {
        "tokens": tokens,
        "embedding": vector(token.embedding),
        "position": None if token.position is None else vector(token.position),
        "stream": vector(token.layers[0].before),
        "layers": [layer_steps(layer, model) for layer in token.layers],
        "final": None if token.norm_f is None else norm_step(token.norm_f, "The last LayerNorm"),
        "candidates": list(
            zip(
                labels(pieces, best, end_id).values(),
                rounded(token.logits[best]),
                rounded(probabilities[best], 3),
                strict=True,
            )
        ),
    }
    return page("follow", "One token through the model", texts, data, paints_numbers=True)


def layer_steps(layer: LayerOfToken, model: ModelSection) -> list[dict[str, Any]]:
    """The steps of a layer in the order in which it computes them."""
    attention = attention_steps(layer, model)
    added = add_step(layer.before, layer.attention, layer.with_attention, "attention", model)
    norms = [
        [] if norm is None else [norm_step(norm, f"LayerNorm {i + 1}")]
        for i, norm in enumerate((layer.norm_1, layer.norm_2))
    ]
    if layer.hidden is None or layer.feed_forward is None or layer.with_feed_forward is None:
        return [*norms[0], *attention, added]
    feed_forward = {
        "kind": "feed-forward",
        "name": "Feed-forward",
        "about": f"Two linear layers with {model.activation} between them, on this token alone. "
        f"{np.mean(layer.hidden > 0):.0%} of the {len(layer.hidden):,} hidden numbers are above 0.",
        "hidden": vector(layer.hidden),
        "output": vector(layer.feed_forward),
    }
    is_post = model.norm == "post"
    entering = layer.norm_1.after if is_post and layer.norm_1 is not None else layer.with_attention
    added_again = add_step(entering, layer.feed_forward, layer.with_feed_forward, "feed-forward", model)
    if is_post:
        return [*attention, added, *norms[0], feed_forward, added_again, *norms[1]]
    return [*norms[0], *attention, added, *norms[1], feed_forward, added_again]


def attention_steps(layer: LayerOfToken, model: ModelSection) -> list[dict[str, Any]]:
    """Query, key and value; scores and weights; the heads times W^O."""
    per_head = {"query": layer.query, "key": layer.key, "value": layer.value}
    scale = f"divided by √{layer.query.shape[1]}" if model.scale_attention else "not scaled (scale_attention: false)"
    return [
        {
            "kind": "projections",
            "name": "Query, key and value",
            "about": "Three matrices make them from the same vector; each head has its own part.",
            **{name: [vector(x) for x in heads] for name, heads in per_head.items()},
        },
        {
            "kind": "scores",
            "name": "Scores and softmax",
            "about": f"The query times the key of each token, {scale}. Softmax makes weights that sum to 1. "
            "The mask hides later tokens; this is the last, so it hides none.",
            "scores": [vector(x) for x in layer.scores],
            "weights": rounded(layer.weights, 3),
        },
        {
            "kind": "mixed",
            "name": "The heads and Wᴼ",
            "about": "Each head sums the values by its weights. All heads, concatenated, times the matrix Wᴼ are the "
            "output of the attention.",
            "heads": [vector(x) for x in layer.heads],
            "output": vector(layer.attention),
        },
    ]


def norm_step(norm: NormStep, name: str) -> dict[str, Any]:
    """A LayerNorm: the mean and deviation that it removes, and the vector before and after."""
    return {
        "kind": "norm",
        "name": name,
        "about": "Subtracts the mean of the numbers, divides by their standard deviation, and applies a learned gain.",
        "mean": float(f"{norm.mean:.4g}"),
        "deviation": float(f"{norm.deviation:.4g}"),
        "before": vector(norm.before),
        "after": vector(norm.after),
    }


def add_step(
    before: npt.NDArray[Any], added: npt.NDArray[Any], after: npt.NDArray[Any], what: str, model: ModelSection
) -> dict[str, Any]:
    """The residual connection around a sublayer, with the lengths of the vectors."""
    is_sum = model.variant != "no_residual"
    return {
        "kind": "residual",
        "name": f"x {'+' if is_sum else '='} {what}",
        "about": RESIDUAL if is_sum else NO_RESIDUAL,
        "what": what,
        "before": vector(before) if is_sum else None,
        "added": vector(added),
        "after": vector(after),
        "lengths": rounded(np.array([np.linalg.norm(x) for x in (before, added, after)])),
    }


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """(V,) -> (V,) in fp64."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(exponentials / exponentials.sum())


def vector(x: npt.NDArray[Any]) -> list[float]:
    """A vector as the page stores it."""
    numbers: list[float] = rounded(x)
    return numbers

"""The HTML page that follows one token through every layer, from its embedding to the logits of the token after it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gptlite.config.schema import ModelSection
from gptlite.tokenizers.base import label, labels
from gptlite.views.page import page, rounded

if TYPE_CHECKING:
    from gptlite.course.follow import FollowedToken, Step

CANDIDATES = 10  # next tokens with their logits

SEEN = "Every sublayer adds its output to x; the longer this is beside x, the more it changes x."
NO_RESIDUAL = "This model has no residual connections (model.variant: no_residual): the sublayer's output replaces x."
RESIDUAL = "The residual connection: the sublayer's output is added to x, which is never overwritten."

STEPS = {  # by kind: the heading, and what the step does
    "norm": (
        "LayerNorm {name}",
        "Subtracts the mean of the numbers, divides by their standard deviation, and applies a learned gain.",
    ),
    "projections": (
        "Query, key and value",
        "Three matrices make them from the same vector; each head has its own part.",
    ),
    "scores": (
        "Scores and softmax",
        "The query times the key of each token, {scale}. Softmax makes weights that sum to 1. "
        "The mask hides later tokens; this is the last, so it hides none.",
    ),
    "mixed": (
        "The heads and Wᴼ",
        "Each head sums the values by its weights. All heads, concatenated, times the matrix Wᴼ are the "
        "output of the attention.",
    ),
    "feed-forward": (
        "Feed-forward",
        "Two linear layers with {activation} between them, on this token alone. "
        "{active:.0%} of the {n_hidden:,} hidden numbers are above 0.",
    ),
    "residual": ("x {sign} {name}", "{residual}"),
}


def follow_page(
    title: str, ids: Sequence[int], pieces: Sequence[bytes], end_id: int, token: FollowedToken, model: ModelSection
) -> str:
    """Return the page. title: a line about model and text. ids: the text's. pieces: the bytes of every id."""
    tokens = [label(pieces[i]) for i in ids]
    exponentials = np.exp(token.logits.astype(np.float64) - token.logits.max())
    probabilities = exponentials / exponentials.sum()  # softmax
    best = np.argsort(-token.logits, kind="stable")[:CANDIDATES].tolist()
    names = labels(pieces, best, end_id).values()
    texts = {
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
        "embedding": rounded(token.embedding),
        "position": None if token.position is None else rounded(token.position),
        "stream": rounded(token.stream),
        "layers": [[describe_step(step, model) for step in steps] for steps in token.layers],
        "final": None if token.norm_f is None else {**describe_step(token.norm_f, model), "name": "The last LayerNorm"},
        "candidates": list(zip(names, rounded(token.logits[best]), rounded(probabilities[best], 3), strict=True)),
    }
    return page("follow", "One token through the model", title, texts, data, paints_numbers=True)


def describe_step(step: Step, model: ModelSection) -> dict[str, Any]:
    """Return a step as the script reads it: its heading, what it does, and its vectors."""
    is_sum, hidden = model.variant != "no_residual", step.vectors.get("hidden", np.zeros(1))
    facts = {
        "name": step.name,
        "scale": f"divided by √{model.head_size}" if model.scale_attention else "not scaled (scale_attention: false)",
        "activation": model.activation,
        "active": np.mean(hidden > 0),
        "n_hidden": len(hidden),
        "sign": "+" if is_sum else "=",
        "residual": RESIDUAL if is_sum else NO_RESIDUAL,
    }
    name, about = (text.format(**facts) for text in STEPS[step.kind])
    vectors = {key: rounded(numbers, 3 if key == "weights" else 4) for key, numbers in step.vectors.items()}
    if step.kind == "residual":
        lengths = [np.linalg.norm(step.vectors[key]) for key in ("before", "added", "after")]
        vectors |= {"what": step.name, "lengths": rounded(lengths)} | ({} if is_sum else {"before": None})
    return {"kind": step.kind, "name": name, "about": about, **vectors}

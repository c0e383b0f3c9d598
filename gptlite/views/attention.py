"""The page that works out the attention of every head for one text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gptlite.tokenizers.readable import label
from gptlite.views.page import few_digits, page

if TYPE_CHECKING:
    from gptlite.inference.inspect import LayerSteps

MOST_TOKENS = 96  # that fit side by side on a screen, and in a page of a few megabytes
MOST_POSITIONS, MOST_CHANNELS = 128, 256  # of the position table

# MathML, which browsers set themselves.
PRODUCT = "<mi>Q</mi><msup><mi>K</mi><mo>&#x22A4;</mo></msup>"
SCALED = f"<mfrac><mrow>{PRODUCT}</mrow><msqrt><mi>d</mi></msqrt></mfrac>"
EMBEDDED = "<msub><mi>x</mi><mi>t</mi></msub><mo>=</mo><msub><mi>E</mi><mtext>token</mtext></msub>"
WITH_POSITION = f"{EMBEDDED}<mo>+</mo><msub><mi>P</mi><mi>t</mi></msub>"

NO_ORDER = (
    "Attention alone sees a set of tokens, not their order. So row t of this table is added to the vector of token t."
)
POSITIONS = {
    "learned": f"{NO_ORDER} Its numbers were learned like all others.",
    "sinusoidal": f"{NO_ORDER} Nothing in it was learned: column by column sin and cos of t / 10000^(2i/C).",
    "none": "This model has no position table (position: none). Only the mask tells of order: later tokens see more.",
}


@dataclass(frozen=True)
class Conventions:
    """What a model's config says about its attention."""

    scaled: bool  # whether scores are divided by the root of the head size
    position: str  # learned | sinusoidal | none


def attention_page(
    about: str,
    pieces: Sequence[bytes],
    layers: Sequence[LayerSteps],
    positions: npt.NDArray[Any] | None,
    conventions: Conventions,
) -> str:
    """about: what was looked at, in a line. pieces: the bytes of each of the T tokens. positions: the table, (T, C)."""
    head_size = layers[0].values.shape[-1]
    words = {
        "about": html.escape(about),
        "score": SCALED if conventions.scaled else PRODUCT,
        "scale": scale_words(conventions.scaled, head_size),
        "position": EMBEDDED if positions is None else WITH_POSITION,
        "where": f"{POSITIONS[conventions.position]} {sampled_words(positions)}",
    }
    data = {
        "tokens": [label(piece) for piece in pieces],
        "visible": np.isfinite(layers[0].masked[0]).astype(int).tolist(),
        "layers": [[numbers_of_head(layer, head) for head in range(len(layer.scores))] for layer in layers],
        "positions": None if positions is None else sampled(positions),
    }
    return page("attention", "What attention does with a text", words, data)


def scale_words(scaled: bool, head_size: int) -> str:
    """What becomes of the products."""
    if scaled:
        return f"Divided by √d, since sums of d = {head_size} products spread that much wider than one."
    return "This model takes the product as it is (scale_attention: false); usually it is divided by √d."


def numbers_of_head(layer: LayerSteps, head: int) -> dict[str, Any]:
    """What the page shows of one head: (T, T) scores and weights, (T, hs) values and mixtures."""
    return {
        "scores": few_digits(layer.scores[head]),
        "weights": few_digits(layer.weights[head], 3),
        "values": few_digits(layer.values[head], 3),
        "heads": few_digits(layer.heads[head], 3),
    }


def sampled(table: npt.NDArray[Any]) -> dict[str, Any]:
    """The position table, or every so many-th row and column of a large one: means of waves would be no waves."""
    every = strides(table)
    return {"shape": table.shape, "every": every, "rows": few_digits(table[:: every[0], :: every[1]], 3)}


def strides(table: npt.NDArray[Any]) -> tuple[int, int]:
    """Which rows and columns of the table are shown: every n-th."""
    rows, columns = table.shape
    return -(-rows // MOST_POSITIONS), -(-columns // MOST_CHANNELS)


def sampled_words(table: npt.NDArray[Any] | None) -> str:
    """What part of the table is shown."""
    if table is None:
        return ""
    rows, columns = table.shape
    every_row, every_column = strides(table)
    shown = f"; the picture has one position in {every_row} and one channel in {every_column}"
    return f"It has {rows} positions and {columns} channels{shown if max(every_row, every_column) > 1 else ''}."

"""The HTML page that works out the attention of every head for one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gptlite.config.schema import ModelSection
from gptlite.tokenizers.base import label
from gptlite.views.page import page, rounded

if TYPE_CHECKING:
    from gptlite.inference.inspect import LayerSteps

MOST_POSITIONS, MOST_CHANNELS = 128, 256  # of the position table
DIGITS = {"scores": 4, "weights": 3, "values": 3, "heads": 3}  # of the numbers of a head

# MathML, which browsers typeset.
PRODUCT = "<mi>Q</mi><msup><mi>K</mi><mo>&#x22A4;</mo></msup>"
SCALED = f"<mfrac><mrow>{PRODUCT}</mrow><msqrt><mi>d</mi></msqrt></mfrac>"
INPUT = "<msub><mi>x</mi><mi>t</mi></msub><mo>=</mo>"
EMBEDDED = "<msub><mi>E</mi><mtext>token</mtext></msub>"
SCALED_EMBEDDING = f"<msqrt><mi>C</mi></msqrt>{EMBEDDED}"
POSITION = "<mo>+</mo><msub><mi>P</mi><mi>t</mi></msub>"

DIVIDED = "They are divided by √d, because a sum of d = {} products has √d times the spread of one."
NOT_DIVIDED = "This model does not scale them (scale_attention: false); usually they are divided by √d."
NO_ORDER = "Attention by itself sees a set of tokens, not their order, so row t of this table is added to token t."
POSITIONS = {  # by model.position
    "learned": f"{NO_ORDER} Its numbers were learned like all others.",
    "sinusoidal": f"{NO_ORDER} It is not learned: its columns are sin and cos of t / 10000^(2i/C), in the "
    "size of token embeddings.",
    "none": "This model has no position table (position: none). Only the mask depends on order: later tokens see more.",
}


def attention_page(
    title: str,
    pieces: Sequence[bytes],
    layers: Sequence[LayerSteps],
    positions: npt.NDArray[Any] | None,
    model: ModelSection,
) -> str:
    """Return the page. title: a line about model and text. pieces: the bytes of each of T tokens. positions: (T, C)."""
    scaled, (shown, size) = model.scale_attention, show_positions(positions)
    texts = {
        "score": SCALED if scaled else PRODUCT,
        "scale": (DIVIDED if scaled else NOT_DIVIDED).format(layers[0].values.shape[-1]),
        "position": INPUT
        + (SCALED_EMBEDDING if model.scale_embeddings else EMBEDDED)
        + ("" if positions is None else POSITION),
        "where": f"{POSITIONS[model.position]} {size}",
    }
    data = {
        "tokens": [label(piece) for piece in pieces],
        "mask": np.isfinite(layers[0].masked[0]).astype(int).tolist(),
        "layers": [
            [
                {name: rounded(getattr(layer, name)[head], digits) for name, digits in DIGITS.items()}
                for head in range(len(layer.scores))
            ]
            for layer in layers
        ],
        "positions": shown,
    }
    return page("attention", "Attention, step by step", title, texts, data, paints_numbers=True)


def show_positions(table: npt.NDArray[Any] | None) -> tuple[dict[str, Any] | None, str]:
    """Return the position table for the page, and a sentence about it.

    Of a large one every n-th row and column are shown: averages would flatten its waves.
    """
    if table is None:
        return None, ""
    rows, columns = table.shape
    every = -(-rows // MOST_POSITIONS), -(-columns // MOST_CHANNELS)
    part = f"; the picture shows one position in {every[0]} and one channel in {every[1]}" if max(every) > 1 else ""
    shown = {"shape": table.shape, "every": every, "rows": rounded(table[:: every[0], :: every[1]], 3)}
    return shown, f"It has {rows} positions and {columns} channels{part}."

"""The HTML page that works out the attention of every head for one text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gptlite.config.schema import ModelSection
from gptlite.tokenizers.readable import label
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
    "sinusoidal": f"{NO_ORDER} It is not learned: its columns are sin and cos of t / 10000^(2i/C)",
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
    scaled = model.scale_attention
    texts = {
        "score": SCALED if scaled else PRODUCT,
        "scale": (DIVIDED if scaled else NOT_DIVIDED).format(layers[0].values.shape[-1]),
        "position": INPUT
        + (SCALED_EMBEDDING if model.scale_embeddings else EMBEDDED)
        + ("" if positions is None else POSITION),
        "where": f"{POSITIONS[model.position]}{describe_factor(model, positions)} {describe_table(positions)}",
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
        "positions": None if positions is None else sample_table(positions),
    }
    return page("attention", "Attention, step by step", title, texts, data, paints_numbers=True)


def describe_factor(model: ModelSection, table: npt.NDArray[Any] | None) -> str:
    """Say what sines and cosines are multiplied by; nothing for another table."""
    if model.position != "sinusoidal" or table is None:
        return ""
    factor = float(np.linalg.norm(table[0, :2]))  # of sin 0 and cos 0
    return "." if math.isclose(factor, 1.0, rel_tol=1e-3) else f", times {factor:.3g}, the size of token embeddings."


def sample_table(table: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the position table, or every n-th row and column of a large one: averages would flatten its waves."""
    every = strides(table)
    return {"shape": table.shape, "every": every, "rows": rounded(table[:: every[0], :: every[1]], 3)}


def strides(table: npt.NDArray[Any]) -> tuple[int, int]:
    """Return the n of every n-th row and of every n-th column that are shown."""
    rows, columns = table.shape
    return -(-rows // MOST_POSITIONS), -(-columns // MOST_CHANNELS)


def describe_table(table: npt.NDArray[Any] | None) -> str:
    """Say how large the table is and which part is shown."""
    if table is None:
        return ""
    rows, columns = table.shape
    every_row, every_column = strides(table)
    shown = f"; the picture shows one position in {every_row} and one channel in {every_column}"
    return f"It has {rows} positions and {columns} channels{shown if max(every_row, every_column) > 1 else ''}."

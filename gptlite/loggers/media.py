"""Images logged in addition to numbers: heat maps of attention, as PNG files."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Image: TypeAlias = npt.NDArray[np.uint8]  # (height, width, 3): red, green, blue

TILE = 192  # pixels: the approximate side of one head's square
GAP = 4
_GREY = 128
# Colours of the weights 0, 1/4 and 1: white, blue, nearly black. Linear in the root, or small weights would be white.
_RAMP = np.array([[255, 255, 255], [74, 144, 200], [8, 24, 56]])


def attention_image(weights: npt.NDArray[np.floating[Any]]) -> Image:
    """Draw the attention weights (nh, T, T) of a layer: a square for each head, row by row."""
    columns, scale = math.ceil(math.sqrt(len(weights))), max(1, TILE // weights.shape[-1])
    enlarged = [colour(of_head).repeat(scale, axis=0).repeat(scale, axis=1) for of_head in weights]
    tiles = [np.pad(tile, ((0, GAP), (0, GAP), (0, 0)), constant_values=_GREY) for tile in enlarged]
    tiles += [np.full_like(tiles[0], _GREY)] * (-len(tiles) % columns)
    rows = [np.hstack(tiles[start : start + columns]) for start in range(0, len(tiles), columns)]
    return np.vstack(rows)[:-GAP, :-GAP]


def colour(weights: npt.NDArray[np.floating[Any]]) -> Image:
    """Map weights (T, T) from 0 to 1 to colours (T, T, 3)."""
    stops = np.linspace(0, 1, len(_RAMP))
    channels = [np.interp(np.sqrt(weights), stops, channel) for channel in _RAMP.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def encode_png(image: Image) -> bytes:
    """Return a PNG file (ISO/IEC 15948): eight bits per channel, no filter, one block of data."""
    height, width, channels = image.shape
    rows = np.zeros((height, 1 + channels * width), np.uint8)  # the first byte of a row is its filter, 0
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 2: red, green, blue
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    )

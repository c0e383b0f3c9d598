"""Attention weights as a picture, and pictures as PNG files."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Pixels: TypeAlias = npt.NDArray[np.uint8]  # (height, width, 3): red, green, blue

TILE = 192  # pixels, about: the side of one head's square
GAP = 4
_GREY = 128
# From weight 0 to weight 1: white, blue, nearly black. Along the root of the weight, or all small ones would be white.
_RAMP = np.array([[255, 255, 255], [74, 144, 200], [8, 24, 56]])


def tiled(weights: npt.NDArray[np.floating[Any]]) -> Pixels:
    """All heads of a layer side by side, row by row: (nh, T, T) -> pixels; each weight is a square of one colour."""
    n_head, n_tokens, _ = weights.shape
    columns = math.ceil(math.sqrt(n_head))
    scale = max(1, TILE // n_tokens)
    side = scale * n_tokens
    rows = math.ceil(n_head / columns)
    pixels = np.full((rows * (side + GAP) - GAP, columns * (side + GAP) - GAP, 3), _GREY, np.uint8)
    for head, square in enumerate(weights):
        top, left = (place * (side + GAP) for place in divmod(head, columns))
        pixels[top : top + side, left : left + side] = coloured(square).repeat(scale, axis=0).repeat(scale, axis=1)
    return pixels


def coloured(weights: npt.NDArray[np.floating[Any]]) -> Pixels:
    """(T, T) -> (T, T, 3)."""
    stops = np.linspace(0, 1, len(_RAMP))
    channels = [np.interp(np.sqrt(weights), stops, channel) for channel in _RAMP.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def png(pixels: Pixels) -> bytes:
    """A PNG file (ISO/IEC 15948): eight bits a channel, no filter, one block of data."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + channels * width), np.uint8)  # each begins with the number of its filter, 0
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 2: red, green, blue
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    )

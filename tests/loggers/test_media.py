"""Images of attention weights: the pixels, and the PNG file as Pillow reads it."""

from __future__ import annotations

import io

import numpy as np
import PIL.Image

from gptlite.loggers.media import GAP, attention_image, encode_png


def test_a_png_file_holds_the_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 3)).astype(np.uint8)
    with PIL.Image.open(io.BytesIO(encode_png(pixels))) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        assert np.array_equal(np.asarray(image), pixels)


def test_each_weight_is_a_square_of_one_colour_and_heads_stand_side_by_side_from_the_left() -> None:
    weights = np.zeros((3, 4, 4))
    weights[:, range(4), range(4)] = 1.0
    weights[2] = [[1, 0, 0, 0], [0.25, 0.75, 0, 0], [0, 0.25, 0.75, 0], [0.25, 0.25, 0.25, 0.25]]
    pixels = attention_image(weights)
    side, cell = 192, 48
    assert pixels.shape == (2 * side + GAP, 2 * side + GAP, 3)
    white, dark = [255, 255, 255], [8, 24, 56]
    for top, left in ((0, 0), (0, side + GAP)):
        for t in range(4):
            for s in range(4):
                square = pixels[top + cell * t :, left + cell * s :][:cell, :cell].reshape(-1, 3)
                assert (square == (dark if s == t else white)).all()
    # The root of 1/4 is the middle of the ramp.
    assert pixels[side + GAP + cell, 0].tolist() == [74, 144, 200]
    # Nothing stands where a fourth head would.
    assert len(np.unique(pixels[side + GAP :, side + GAP :].reshape(-1, 3), axis=0)) == 1

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.views.line_plot import COLOURS, Line, line_plot, log_ticks, round_ticks

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*lines: Line, title: str = "t") -> ElementTree.Element:
    return ElementTree.fromstring(line_plot(lines, title=title, x_label="x", y_label="y"))


def texts(svg: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in svg.iter(f"{SVG}text")]


def curves(svg: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """The points of each line, without the strokes of the legend."""
    paths = [path.get("d", "") for path in svg.iter(f"{SVG}path") if path.get("class") == "data"]
    curves = [path for path in paths if not path.endswith("h28")]
    return [[(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path)] for path in curves]


def ticks(svg: ElementTree.Element) -> tuple[dict[float, float], dict[float, float]]:
    """Number -> pixel on the two axes, as a reader sees it."""
    found: tuple[dict[float, float], dict[float, float]] = ({}, {})
    for label in svg.iter(f"{SVG}text"):
        if label.get("class") == "tick":
            upright = label.get("text-anchor") == "end"
            found[upright][float(label.text or "")] = float(label.get("y" if upright else "x", "")) - 4.5 * upright
    return found


def test_points_are_where_the_tick_labels_say():
    ys = [4.0, 3.5, 3.0, 3.0, 2.5, 2.0, 2.0, 2.0, 2.0, 2.0]
    svg = drawn(Line("falling", ys, range(1, 11)))
    across, up = ticks(svg)
    assert list(across) == [1, 2, 5, 10]
    assert list(up) == [2.0, 2.5, 3.0, 3.5, 4.0]
    (points,) = curves(svg)
    for x in across:
        assert points[int(x) - 1] == pytest.approx((across[x], up[ys[int(x) - 1]]), abs=0.11)
    # Between ticks: along the logarithm of x.
    share = math.log(3) / math.log(10)
    assert points[2][0] == pytest.approx(across[1] + share * (across[10] - across[1]), abs=0.11)


def test_every_line_has_its_own_style_and_is_in_the_legend_in_order():
    names = [f"run {i}" for i in range(len(COLOURS) + 2)]
    svg = drawn(*(Line(name, [1.0 + i, 0.5 + i], [1, 2]) for i, name in enumerate(names)))
    assert [text for text in texts(svg) if text in names] == names
    pens = [path.get("style") for path in svg.iter(f"{SVG}path") if path.get("class") == "data"]
    assert pens[::2] == pens[1::2]  # in the legend, and of the curve
    assert len(set(pens)) == len(names)
    assert len(curves(svg)) == len(names)


def test_names_are_escaped_and_cut():
    lines = [Line(name, [1.0, 2.0], [1, 2]) for name in ('<script>"&', "a\x00b\ud800" + "x" * 200)]
    svg = drawn(*lines, title="</svg>&amp;")
    assert '<script>"&' in texts(svg)
    assert "</svg>&amp;" in texts(svg)
    (long,) = [text for text in texts(svg) if text.startswith("a\ufffdb\ufffd")]
    assert len(long) == 90


@pytest.mark.parametrize("ys", [[3.7], [3.7, 3.7], [0.0], [1e-9, 2e-9]])
def test_single_points_and_equal_values_are_drawn_inside_the_picture(ys):
    svg = drawn(Line("few", ys, range(1, 1 + len(ys))))
    (points,) = curves(svg)
    _, _, width, height = map(float, svg.get("viewBox", "").split())
    assert all(0 < x < width and 0 < y < height for x, y in points)
    assert len(ticks(svg)[1]) >= 2


@given(st.floats(0, 1000), st.floats(0.01, 1000))
def test_ticks_are_round_numbers_around_the_values(low, span):
    found = round_ticks(low, low + span)
    assert found[0] <= low
    assert found[-1] >= low + span
    assert 2 <= len(found) <= 9
    step = (found[-1] - found[0]) / (len(found) - 1)
    digits = step / 10 ** math.floor(math.log10(step) + 1e-6)
    assert min(abs(digits - one) for one in (1, 2, 5)) < 1e-3
    assert all(found[i] / step == pytest.approx(round(found[i] / step), abs=1e-3) for i in range(len(found)))


def test_logarithmic_ticks_are_ones_twos_and_fives():
    assert log_ticks(1, 1) == [1]
    assert log_ticks(1, 1000) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert log_ticks(30_000, 260_000) == [50_000, 100_000, 200_000]
    assert log_ticks(0.7, 10_000_000) == [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000]
    assert "2k" in texts(drawn(Line("long", [1.0] * 2000, range(1, 2001))))


def test_a_line_with_places_and_a_band_is_where_they_say():
    svg = drawn(Line("seeds", [3.0, 2.0], xs=[50, 200], band=[(2.5, 3.5), (2.0, 2.5)]))
    across, up = ticks(svg)
    (points,) = curves(svg)
    assert points == [pytest.approx((across[x], up[y]), abs=0.11) for x, y in ((50, 3.0), (200, 2.0))]
    (band,) = [path.get("d") for path in svg.iter(f"{SVG}path") if path.get("class") == "band"]
    corners = [tuple(map(float, pair.split(","))) for pair in re.findall(r"[\d.]+,[\d.]+", band)]
    expected = [(50, 2.5), (200, 2.0), (200, 2.5), (50, 3.5)]
    assert corners == [pytest.approx((across[x], up[y]), abs=0.11) for x, y in expected]

"""Line plots as one self-contained SVG file, over a logarithmic x axis, for light and dark screens."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from gptlite.formatting import abbreviated

WIDTH, HEIGHT = 860, 420  # with labels, without the legend
LEFT, RIGHT, BOTTOM, TOP = 64, 24, 52, 52
LINE_HEIGHT = 22  # of the legend
MOST_TICKS = 12  # of the x axis, where they are marked at 1, 2 and 5
LONGEST = 90  # characters; longer texts are cut

# Okabe and Ito's colours, which most colour-blind people can tell apart, on light and on dark screens.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9")
DASHES = ("none", "7 4", "2 3")  # where there are more lines than colours

STYLE = """\
  svg { color-scheme: light dark; --paper: #fbfaf7; --ink: #1d2126; --faint: #69707a; --line: #dedcd4 }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #121417; --ink: #e6e3dc; --faint: #969ca5; --line: #33383f }
  }
  text { font: 13px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: var(--ink); }
  .title { font-size: 17px; font-weight: 600; }
  .tick { fill: var(--faint); }
  .grid { stroke: var(--line); }
  .band { opacity: 0.2; }
  .data { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
"""


@dataclass(frozen=True)
class Line:
    """A curve of the values `ys` at `xs`, above 0 and rising; band: as many lower and upper bounds, or none."""

    name: str
    ys: Sequence[float]
    xs: Sequence[float]
    band: Sequence[tuple[float, float]] = ()


def line_plot(lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """Plot at least one line of at least one point, all finite, as SVG. The labels of the axes are not escaped."""
    top = TOP + LINE_HEIGHT * len(lines)
    bottom, right = top + HEIGHT - BOTTOM, WIDTH - RIGHT
    first, last = min(line.xs[0] for line in lines), max(line.xs[-1] for line in lines)
    all_ys = [y for line in lines for y in (*line.ys, *itertools.chain(*line.band))]
    y_ticks = round_ticks(min(all_ys), max(all_ys))
    digits = max(0, math.ceil(-math.log10(y_ticks[1] - y_ticks[0]) - 1e-6))

    def across(x: float) -> float:
        return LEFT + math.log(x / first) / math.log(max(2, last / first)) * (right - LEFT)

    def up(y: float) -> float:
        return bottom + (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (top - bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + HEIGHT}" width="{WIDTH}" '
        f'height="{top + HEIGHT}" role="img">',
        f"<style>\n{STYLE}</style>",
        '<rect width="100%" height="100%" fill="var(--paper)"/>',
        f'<text class="title" x="{LEFT}" y="32">{_text(title)}</text>',
        f'<text transform="translate(18,{(top + bottom) / 2}) rotate(-90)" text-anchor="middle">{y_label}</text>',
        f'<text x="{(LEFT + right) / 2}" y="{bottom + 42}" text-anchor="middle">{x_label}</text>',
    ]
    for tick in y_ticks:
        y = up(tick)
        parts += [
            f'<path class="grid" d="M{LEFT},{y:.1f} H{right}"/>',
            f'<text class="tick" x="{LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end">{tick:.{digits}f}</text>',
        ]
    for tick in log_ticks(first, last) or [first, last]:
        x, label = across(tick), re.sub(r"\.0+(?=\D|$)", "", abbreviated(round(tick)))
        parts += [
            f'<path class="grid" d="M{x:.1f},{top} V{bottom}"/>',
            f'<text class="tick" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{label}</text>',
        ]
    for i, line in enumerate(lines):
        colour, dashes = COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]
        points = [f"{across(x):.1f},{up(y):.1f}" for x, y in zip(line.xs, line.ys, strict=True)]
        pen, key = f'class="data" style="stroke: {colour}; stroke-dasharray: {dashes}"', TOP + LINE_HEIGHT * i
        if line.band:
            there = [f"{across(x):.1f},{up(low):.1f}" for x, (low, _) in zip(line.xs, line.band, strict=True)]
            back = [f"{across(x):.1f},{up(high):.1f}" for x, (_, high) in zip(line.xs, line.band, strict=True)]
            parts.append(f'<path class="band" style="fill: {colour}" d="M{" L".join(there + back[::-1])} Z"/>')
        parts += [
            f'<path {pen} d="M{LEFT},{key} h28"/>',
            f'<text x="{LEFT + 38}" y="{key + 4.5}">{_text(line.name)}</text>',
            f'<path {pen} d="M{" L".join(points)} h0"/>',  # h0, so that a single point is drawn
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def round_ticks(low: float, high: float) -> list[float]:
    """About six multiples of 1, 2 or 5 times a power of ten, from at most `low` to at least `high`.

    >>> round_ticks(2.13, 3.9)
    [2.0, 2.5, 3.0, 3.5, 4.0]
    """
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 6))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * 6 >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    digits = max(0, -math.floor(math.log10(step)))
    return [round(i * step, digits) for i in range(first, max(last, first + 1) + 1)]  # 3 * 0.1 is not 0.3


def log_ticks(low: float, high: float) -> list[float]:
    """Return those of 1, 2, 5, 10, 20, ... that lie between two numbers above 0; powers of ten where these are many.

    >>> log_ticks(1, 64)
    [1, 2, 5, 10, 20, 50]
    """
    powers = [10**power for power in range(len(str(int(high))))]
    ticks = [tick for power in powers for factor in (1, 2, 5) if low <= (tick := factor * power) <= high]
    return ticks if len(ticks) <= MOST_TICKS else [tick for tick in ticks if tick in powers]


def _text(text: str) -> str:
    """Escape a text for XML, without control characters, and cut it to fit."""
    shown = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return escape("".join(character if character.isprintable() else "\ufffd" for character in shown))

"""Line plots as one self-contained SVG file, over a logarithmic x axis, for light and dark screens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 420  # with labels, without the legend
LEFT, RIGHT, BOTTOM, TOP = 64, 24, 52, 52
LINE_HEIGHT = 22  # of the legend
LONGEST = 90  # characters; longer texts are cut

# Okabe and Ito's colours, which most colour-blind people can tell apart; lighter ones for dark screens.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9")
COLOURS_ON_DARK = ("#4aa8e0", "#ff8c42", "#33c79b", "#e29cc4", "#e6b422", "#8fd0f5")
DASHES = ("none", "7 4", "2 3")  # where there are more lines than colours

STYLE = """\
  svg { color-scheme: light dark; --paper: #fbfaf7; --ink: #1d2126; --faint: #69707a; --line: #dedcd4; %s }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #121417; --ink: #e6e3dc; --faint: #969ca5; --line: #33383f; %s }
  }
  text { font: 13px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; fill: var(--ink); }
  .title { font-size: 17px; font-weight: 600; }
  .tick { fill: var(--faint); }
  .grid { stroke: var(--line); }
  .axis { stroke: var(--faint); }
  .data { fill: none; stroke-width: 2; stroke-linejoin: round; }
"""


@dataclass(frozen=True)
class Line:
    """A curve through (1, y), (2, y), ..."""

    name: str
    ys: Sequence[float]


def line_plot(lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """Plot at least one line of at least one point, all finite, as SVG."""
    top = TOP + LINE_HEIGHT * len(lines)
    longest = max(len(line.ys) for line in lines)
    x_ticks = log_ticks(longest)
    y_ticks = round_ticks(min(min(line.ys) for line in lines), max(max(line.ys) for line in lines))
    scale = _scale(0, math.log(max(2, longest)), LEFT, WIDTH - RIGHT)
    up = _scale(y_ticks[0], y_ticks[-1], top + HEIGHT - BOTTOM, top)

    def across(x: float) -> float:
        return scale(math.log(x))

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + HEIGHT}" width="{WIDTH}" '
        f'height="{top + HEIGHT}" role="img">',
        f"<title>{_text(title)}</title>",
        f"<style>\n{STYLE % (_variables(COLOURS), _variables(COLOURS_ON_DARK))}</style>",
        '<rect width="100%" height="100%" fill="var(--paper)"/>',
        f'<text class="title" x="{LEFT}" y="32">{_text(title)}</text>',
        *(part for i, line in enumerate(lines) for part in _legend(i, line.name)),
        *_y_axis(y_ticks, up, y_label),
        *_x_axis(x_ticks, across, top, x_label),
        *(part for i, line in enumerate(lines) for part in _curve(i, line, across, up)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


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


def log_ticks(high: float) -> list[int]:
    """1, 2, 5, 10, 20, ... up to `high`.

    >>> log_ticks(64)
    [1, 2, 5, 10, 20, 50]
    """
    powers = range(len(str(int(high))))
    return [tick for power in powers for factor in (1, 2, 5) if (tick := factor * 10**power) <= high]


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Map low .. high to the pixels start .. end."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _legend(i: int, name: str) -> Iterator[str]:
    y = TOP + LINE_HEIGHT * i
    yield f'<path class="data" {_pen(i)} d="M{LEFT},{y} h28"/>'
    yield f'<text x="{LEFT + 38}" y="{y + 4.5}">{_text(name)}</text>'


def _y_axis(ticks: Sequence[float], up: Callable[[float], float], label: str) -> Iterator[str]:
    digits = max(0, math.ceil(-math.log10(ticks[1] - ticks[0]) - 1e-6))
    for tick in ticks:
        y = up(tick)
        yield f'<path class="grid" d="M{LEFT},{y:.1f} H{WIDTH - RIGHT}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4.5:.1f}" text-anchor="end">{tick:.{digits}f}</text>'
    middle = (up(ticks[0]) + up(ticks[-1])) / 2
    yield f'<text transform="translate(18,{middle:.1f}) rotate(-90)" text-anchor="middle">{_text(label)}</text>'


def _x_axis(ticks: Sequence[float], across: Callable[[float], float], top: float, label: str) -> Iterator[str]:
    bottom = top + HEIGHT - BOTTOM
    for tick in ticks:
        x, label_of_tick = across(tick), str(tick) if tick < 1000 else f"{tick // 1000}k"
        yield f'<path class="grid" d="M{x:.1f},{top} V{bottom}"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{label_of_tick}</text>'
    yield f'<path class="axis" d="M{LEFT},{bottom} H{WIDTH - RIGHT}"/>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{bottom + 42}" text-anchor="middle">{_text(label)}</text>'


def _curve(i: int, line: Line, across: Callable[[float], float], up: Callable[[float], float]) -> Iterator[str]:
    points = [f"{across(x):.1f},{up(y):.1f}" for x, y in enumerate(line.ys, start=1)]
    yield f'<path class="data" {_pen(i)} d="M{" L".join(points)}"/>'
    if len(points) == 1:  # a path of one point is not drawn
        x, y = points[0].split(",")
        yield f'<circle cx="{x}" cy="{y}" r="3" fill="var(--line-{i % len(COLOURS)})"/>'


def _pen(i: int) -> str:
    turn = i // len(COLOURS) % len(DASHES)
    return f'style="stroke: var(--line-{i % len(COLOURS)}); stroke-dasharray: {DASHES[turn]}"'


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--line-{i}: {colour};" for i, colour in enumerate(colours))


def _text(text: str) -> str:
    """Escape a text for XML, without control characters, and cut it to fit."""
    shown = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return escape("".join(character if character.isprintable() else "\ufffd" for character in shown))

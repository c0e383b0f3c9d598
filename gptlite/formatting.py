"""Lines for people: who shows them, and numbers as people read them: counts with their nouns, sizes, ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]  # shows a line to the user


def say_nothing(line: str) -> None:
    """Show nothing: a `Say` for those who do not listen."""


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "file"), counted(1200, "token"), counted(2, "process")
    ('1 file', '1,200 tokens', '2 processes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def and_more(names: Sequence[str], most: int) -> str:
    """Name the first, and how many others there are.

    >>> and_more(["a", "b"], 2), and_more(["a", "b", "c"], 1)
    ('a, b', 'a and 2 more')
    """
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def abbreviated(number: int) -> str:
    """Write a count in at most five characters.

    >>> abbreviated(950), abbreviated(3664), abbreviated(124439808)
    ('950', '3.66k', '124M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * unit:  # from there on it rounds to one
            return f"{number / unit:#.3g}".rstrip(".") + name
    return str(number)


def size(n_bytes: float) -> str:
    """Write bytes as people say them.

    >>> size(1500), size(43 * 2**20), size(3 * 2**30)
    ('1.5 KiB', '43 MiB', '3.0 GiB')
    """
    unit, name = next(((u, n) for u, n in ((2**30, "GiB"), (2**20, "MiB")) if n_bytes >= u), (2**10, "KiB"))
    return f"{n_bytes / unit:.{1 if n_bytes < 10 * unit else 0}f} {name}"


def amount(number: float) -> str:
    """Write a ratio in two digits, or all of those before the point.

    >>> amount(0.0312), amount(4.08), amount(812.3)
    ('0.031', '4.1', '812')
    """
    return f"{number:.2g}" if number < 9.95 else f"{number:,.0f}"


def clock_time(seconds: float) -> str:
    """Write minutes and seconds, after an hour with hours.

    >>> clock_time(59), clock_time(3600)
    ('00:59', '1:00:00')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def duration(seconds: float) -> str:
    """Write a time in one or two units.

    >>> duration(0.0042), duration(2.345), duration(200), duration(7500)
    ('4.2 ms', '2.3 s', '3 min 20 s', '2 h 5 min')
    """
    if seconds < 1:
        return f"{1000 * seconds:.{1 if seconds < 0.01 else 0}f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {second} s"
    return f"{minutes // 60} h {minutes % 60} min"

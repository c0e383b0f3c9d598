"""The verdict on a run at its end: its score beside compressors, what it means, and what would make it better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gptlite.formatting import counted
from gptlite.runs.summary import Evaluation

RISEN = 0.01  # above the best score; the evaluations of a small validation text vary by less
FALLING = 0.001  # per minute
# What models write, by their score as a part of that of byte frequencies; and the smallest part that texts of some
# bytes of prose gave (docs/training.md, "What a score means").
MEANINGS = (
    (0.8, "letters in about the right numbers, but no words yet"),
    (0.62, "syllables and short words"),
    (0.5, "words, many of them invented, and no sense yet"),
    (0.445, "mostly real words and short phrases, but no sense yet"),
    (0.38, "real words in sentences of mostly right grammar, but no sense yet"),
    (0.25, "phrases and lines like those of the text, with sense in a few"),
    (0.0, "lines and passages like those of the text"),
)
REACHED = (40_000, 0.55), (200_000, 0.46), (1_100_000, 0.42)


@dataclass(frozen=True)
class Verdict:
    """Lines about the curve of a run, and what would make its score better, if that is known."""

    lines: tuple[str, ...] = ()
    better: Literal["text", "time", "sizes"] | None = None


def judge(
    evaluations: Sequence[Evaluation],
    *,
    val_tokens: int,
    epochs: float = math.inf,
    ends_early: bool = False,
    characters_follow: bool = False,
) -> Verdict:
    """Judge a finished run; without lines where its evaluations, which are sorted by step, say nothing.

    val_tokens: of the validation text. epochs: for which the text was read; in the first nothing can be overfitted.
    ends_early: whether training ended because its text is short. characters_follow: whether it was BPE, and for more
    minutes characters would be chosen.
    """
    if len(evaluations) < 2:
        return Verdict()
    best = min(evaluations, key=lambda evaluation: evaluation.bits_per_byte)
    before, last = evaluations[-2:]
    if len(evaluations) > 2 and last.step - before.step < (before.step - evaluations[-3].step) / 2:
        before = evaluations[-3]  # the end came soon after an evaluation
    risen = last.bits_per_byte / best.bits_per_byte - 1
    if risen > max(RISEN, noise(val_tokens)) and epochs > 1:
        lines = (
            f"overfitted: the score rose by {risen:.0%} in the {counted(last.step - best.step, 'step')} since step "
            f"{best.step}. More text, a larger model.dropout or fewer steps help.",
            f"checkpoint best, which `sample` and `eval` use, is that of step {best.step}; latest is for training on",
        )
        return Verdict(lines, "sizes")
    if ends_early and characters_follow:
        return Verdict(("with more minutes so short a text is read as characters, which ends better",), "time")
    if ends_early:
        line = "more text would make it better, more time would not: so short a text is soon learned by heart"
        return Verdict((line,), "text")
    if before.seconds is None or last.seconds is None or last.seconds <= before.seconds:
        return Verdict()
    fallen, seconds = 1 - last.bits_per_byte / before.bits_per_byte, last.seconds - before.seconds
    if fallen <= noise(val_tokens) or fallen * 60 / seconds <= FALLING:
        return Verdict()
    fall = f"{fallen:.1%} in the last {seconds:.0f} s"
    if seconds >= 60:
        fall = f"{fallen * 60 / seconds:.1%} per minute at the end"
    return Verdict((f"the score still fell by {fall}: more training should help",), "time")


def explain(bits_per_byte: float, byte_frequencies: float, text_bytes: int) -> str:
    """Say what a model with such a score writes, and a longer text would give. byte_frequencies: the score of these.

    >>> explain(2.58, 4.64, 40_000)[:66]
    'such a model writes words, many of them invented, and no sense yet'
    """
    here = _meaning(bits_per_byte / byte_frequencies)
    said = f"such a model writes {here}"
    usual = [part for size, part in REACHED if size <= 2 * text_bytes]
    more = [(size, part) for size, part in REACHED if size >= 3 * text_bytes and _meaning(part) != here]
    if not usual or not more or _meaning(usual[-1]) != here:
        return said
    size, part = more[0]
    return f"{said}. {text_bytes / 1000:,.0f} KB of prose rarely give more; {size / 1000:,.0f} KB gave {_meaning(part)}"


def _meaning(part: float) -> str:
    return next(words for least, words in MEANINGS if part >= least)


def noise(val_tokens: int) -> float:
    """Return the standard error of a score as a fraction of it: the nats of a token scatter about as widely as their
    mean is large (docs/decisions.md)."""
    return 1 / math.sqrt(val_tokens)


def compare(bits_per_byte: float, compressors: Mapping[str, float | None]) -> str:
    """Say which compressors the model beats. compressors: bits per byte of the same text by name.

    >>> compare(1.5, {"xz -9": 1.6, "gzip -9": 1.4})
    'beside compressors of that text: better than xz -9 (1.600), worse than gzip -9 (1.400)'
    """
    known = {f"{name} ({score:.3f})": score for name, score in compressors.items() if score is not None}
    beaten = [name for name, score in known.items() if bits_per_byte < score]
    others = [name for name, score in known.items() if bits_per_byte >= score]
    parts = (("better than ", beaten), ("worse than ", others))
    return "beside compressors of that text: " + ", ".join(word + " and ".join(names) for word, names in parts if names)

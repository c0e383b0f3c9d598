"""The verdict on a run at its end: its score beside compressors, and whether it overfitted or was still falling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from gptlite.formatting import counted
from gptlite.runs.summary import Evaluation

RISEN = 0.01  # above the best score; the evaluations of a small validation text vary by less
FALLING = 0.001  # per minute


def judge(
    evaluations: Sequence[Evaluation], *, val_tokens: int, epochs: float = math.inf, ends_early: bool = False
) -> list[str]:
    """Return lines about a finished run; none where its evaluations, which are sorted by step, say nothing.

    val_tokens: of the validation text. epochs: for which the text was read; in the first nothing can be overfitted.
    ends_early: whether training ended because its text is short.
    """
    if len(evaluations) < 2:
        return []
    best = min(evaluations, key=lambda evaluation: evaluation.bits_per_byte)
    before, last = evaluations[-2:]
    risen = last.bits_per_byte / best.bits_per_byte - 1
    if risen > max(RISEN, noise(val_tokens)) and epochs > 1:
        return [
            f"overfitted: the score rose by {risen:.0%} in the {counted(last.step - best.step, 'step')} since step "
            f"{best.step}. More text, a larger model.dropout or fewer steps help.",
            f"checkpoint best, which `sample` and `eval` use, is that of step {best.step}; latest is for training on",
        ]
    if ends_early:
        return ["more text would make it better, more time would not: so short a text is soon learned by heart"]
    if before.seconds is None or last.seconds is None or last.seconds <= before.seconds:
        return []
    fallen, seconds = 1 - last.bits_per_byte / before.bits_per_byte, last.seconds - before.seconds
    if fallen <= noise(val_tokens) or fallen * 60 / seconds <= FALLING:
        return []
    if seconds < 60:
        return [f"the score still fell by {fallen:.1%} in the last {seconds:.0f} s: training longer may pay"]
    return [f"the score still fell by {fallen * 60 / seconds:.1%} per minute at the end: training longer may pay"]


def noise(val_tokens: int) -> float:
    """Return the standard error of a score as a fraction of it: the nats of a token scatter about as widely as their
    mean is large (docs/decisions.md)."""
    return 1 / math.sqrt(val_tokens)


def compare(bits_per_byte: float, compressors: Mapping[str, float | None]) -> str:
    """Say which compressors the model beats. compressors: bits per byte of the same text by name.

    >>> compare(1.5, {"xz -9": 1.6, "gzip -9": 1.4})
    'on the same text: better than xz -9 (1.600), worse than gzip -9 (1.400)'
    """
    known = {f"{name} ({score:.3f})": score for name, score in compressors.items() if score is not None}
    beaten = [name for name, score in known.items() if bits_per_byte < score]
    others = [name for name, score in known.items() if bits_per_byte >= score]
    parts = (("better than ", beaten), ("worse than ", others))
    return "on the same text: " + ", ".join(word + " and ".join(names) for word, names in parts if names)

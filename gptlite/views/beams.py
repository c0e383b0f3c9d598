"""The HTML page of a beam search: the candidates of every step, which of them were kept, and the texts found."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gptlite.config.sampling import SampleSection
from gptlite.formatting import counted
from gptlite.tokenizers.readable import label, labels
from gptlite.views.page import page

if TYPE_CHECKING:
    from gptlite.inference.beam import Candidate, Hypothesis

MOST_CANDIDATES = 4000  # on a page, which then takes a fifth of a megabyte
MOST_PROMPT = 120  # characters

Step = Sequence["Candidate"]


def beams_page(
    title: str,
    prompt: str,
    pieces: Sequence[bytes],
    end_id: int,
    steps: Sequence[Step],
    found: Sequence[tuple[str, Hypothesis]],
    params: SampleSection,
) -> str:
    """Return the page. title: a line about the model. pieces: the bytes of every id. end_id: that of end-of-text.

    steps: what `beam_search` recorded. found: the best texts with their hypotheses, the best first.
    """
    shown = first_steps(steps)
    ids = sorted({candidate.token for step in shown for candidate in step} | set(found[0][1].tokens))
    tokens = labels(pieces, ids, end_id)
    texts = {
        "about": html.escape(title),
        "width": counted(params.beams or 0, "text"),
        "alpha": f"{params.beam_length_penalty:g}",
        "end": end_of_search(steps, shown, params),
    }
    data = {
        "prompt": label(prompt[-MOST_PROMPT:].encode()) if prompt else "start of text",
        "is_cut": len(prompt) > MOST_PROMPT,
        "labels": tokens,
        "steps": [[candidate_row(candidate) for candidate in step] for step in shown],
        "best": path_of(found[0][1], shown),
        "found": [
            [label(text.encode()), shortened(each.logprob), length_of(each), shortened(each.score), each.reason]
            for text, each in found
        ],
    }
    return page("beams", "Beam search, step by step", texts, data)


def first_steps(steps: Sequence[Step]) -> list[Step]:
    """The first step, and as many after it as have at most MOST_CANDIDATES candidates in all."""
    shown = list[Step]()
    for step in steps:
        if shown and sum(map(len, shown)) + len(step) > MOST_CANDIDATES:
            break
        shown.append(step)
    return shown


def end_of_search(steps: Sequence[Step], shown: Sequence[Step], params: SampleSection) -> str:
    """Say how long the search was, why it ended, and how much of it is shown."""
    if len(steps) == params.max_new_tokens:
        why = "the most tokens that were asked for (max_new_tokens)"
    elif any(candidate.next_beam is not None for candidate in steps[-1]):
        why = "after which no beam could overtake the finished texts"
    else:
        why = "after which every beam had ended"
    cut = f" The page shows the first {len(shown)}, to stay small." if len(shown) < len(steps) else ""
    return f"The search took {counted(len(steps), 'step')}, {why}.{cut}"


def candidate_row(candidate: Candidate) -> list[Any]:
    """A candidate as the page stores it: beam, token, log p, sum, number of the next beam, why it ended."""
    return [
        candidate.beam,
        candidate.token,
        shortened(candidate.logprob),
        shortened(candidate.total),
        candidate.next_beam,
        candidate.reason,
    ]


def path_of(found: Hypothesis, steps: Sequence[Step]) -> list[int]:
    """The candidate of each step, by its number, that led to a text; as far as the steps reach."""
    path, beam = list[int](), 0
    for i, step in enumerate(steps[: length_of(found)]):
        of_beam = [(number, each) for number, each in enumerate(step) if each.beam == beam]
        if i < len(found.tokens):
            number = next(number for number, each in of_beam if each.token == found.tokens[i])
        else:  # the token that ended the text is not among its tokens
            number = next(
                number for number, each in of_beam if (each.reason, each.total) == (found.reason, found.logprob)
            )
        path.append(number)
        beam = step[number].next_beam or 0
    return path


def length_of(found: Hypothesis) -> int:
    """The tokens of a text with the one that ended it, as the length penalty counts them."""
    return len(found.tokens) + (found.reason in ("end of text", "stop token"))


def shortened(number: float) -> float:
    """A number with six significant digits."""
    return float(f"{number:.6g}")

"""The HTML page of a beam search: the candidates of every step, which of them were kept, and the texts found."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gptlite.config.training import SampleSection
from gptlite.formatting import counted
from gptlite.tokenizers.base import label, labels
from gptlite.views.page import page, rounded

if TYPE_CHECKING:
    from gptlite.course.explained_beams import Candidate, ExplainedSearch
    from gptlite.inference.beam import Hypothesis

MOST_CANDIDATES = 4000  # on a page, which then takes a fifth of a megabyte
MOST_PROMPT = 120  # characters

Step = Sequence["Candidate"]


def beams_page(
    title: str,
    prompt: str,
    pieces: Sequence[bytes],
    end_id: int,
    search: ExplainedSearch,
    params: SampleSection,
) -> str:
    """Return the page. title: a line about the model. pieces: the bytes of every id. end_id: that of end-of-text."""
    totals = itertools.accumulate(map(len, search.steps))
    n_shown = max(1, sum(total <= MOST_CANDIDATES for total in totals))
    shown, best = search.steps[:n_shown], search.texts[0][1]
    ids = sorted({candidate.token for step in shown for candidate in step} | set(best.tokens))
    texts = {
        "width": counted(params.beams or 0, "text"),
        "alpha": f"{params.beam_length_penalty:g}",
        "end": end_of_search(search.steps, shown, params),
    }
    data = {
        "prompt": label(prompt[-MOST_PROMPT:].encode()) if prompt else "start of text",
        "is_cut": len(prompt) > MOST_PROMPT,
        "labels": labels(pieces, ids, end_id),
        # beam, token, log p, sum, number of the next beam, why it ended
        "steps": [
            [[c.beam, c.token, rounded(c.logprob, 6), rounded(c.total, 6), c.next_beam, c.reason] for c in step]
            for step in shown
        ],
        "best": path_of(best, shown),
        "found": [
            [label(text.encode()), rounded(found.logprob, 6), length_of(found), rounded(found.score, 6), found.reason]
            for text, found in search.texts
        ],
    }
    return page("beams", "Beam search, step by step", title, texts, data)


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


def path_of(text: Hypothesis, steps: Sequence[Step]) -> list[int]:
    """Return the candidate of each step, by its number, that led to a text; as far as the steps reach."""
    path, beam = list[int](), 0
    for i, step in enumerate(steps[: length_of(text)]):
        for number, candidate in enumerate(step):
            # The token that ended the text is not among its tokens.
            ends = i == len(text.tokens) and (candidate.reason, candidate.total) == (text.reason, text.logprob)
            if candidate.beam == beam and (ends or text.tokens[i : i + 1] == (candidate.token,)):
                path.append(number)
                beam = candidate.next_beam or 0
                break
    return path


def length_of(text: Hypothesis) -> int:
    """Count the tokens of a text with the one that ended it, as the length penalty counts them."""
    return len(text.tokens) + (text.reason in ("end of text", "stop token"))

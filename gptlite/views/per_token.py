"""The page that colours a text by how surprising each of its tokens was."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gptlite.tokenizers.readable import labels, readable
from gptlite.views.page import few_digits, page

if TYPE_CHECKING:
    from gptlite.inference.inspect import TokenScores

PEAKS = 12


@dataclass(frozen=True)
class ScoredText:
    """What was read: `about` in a line; tokens of context before a token; the first token, if it is not scored and is
    to be shown; how many tokens there are, if only the first were scored."""

    about: str
    block_size: int
    first_id: int | None
    n_all: int | None


def per_token_page(reading: ScoredText, seen: TokenScores, pieces: list[bytes], end: int) -> str:
    """pieces: the bytes of every id of the vocabulary; end: the id of end-of-text."""
    bits = seen.nats / math.log(2)
    n_bytes = sum(len(pieces[i]) for i in seen.ids.tolist())
    words = {
        "about": html.escape(reading.about),
        "window": f"{reading.block_size:,}",
        "bits_per_byte": f"{bits.sum() / n_bytes:.4f}" if n_bytes else "no",
        "mean": f"{bits.mean():.3f}",
        "tokens": f"{len(bits):,}",
        "bytes": f"{n_bytes:,}",
        "cut": cut_words(reading, len(bits)),
    }
    first = reading.first_id
    data = {
        "tokens": rows_of(seen, bits, pieces),
        "labels": labels(pieces, np.unique(np.concatenate([seen.ids, seen.top_ids.ravel()])).tolist(), end),
        "context": None if first is None else {"text": readable(pieces[first]), "id": first},
        "peaks": np.argsort(-bits, kind="stable")[:PEAKS].tolist(),
        "end": end,
    }
    return page("per_token", "How surprising each token was", words, data)


def rows_of(seen: TokenScores, bits: Any, pieces: Sequence[bytes]) -> list[list[Any]]:
    """One row per token: text, id, bits, rank, and the likeliest ids with their probabilities."""
    columns = zip(
        seen.ids.tolist(),
        few_digits(bits),
        seen.ranks.tolist(),
        seen.top_ids.tolist(),
        few_digits(seen.top_probabilities, 3),
        strict=True,
    )
    return [
        [readable(pieces[i]), i, surprise, rank, list(zip(top, probabilities, strict=True))]
        for i, surprise, rank, top, probabilities in columns
    ]


def cut_words(reading: ScoredText, n_shown: int) -> str:
    """What is not shown."""
    if reading.n_all is None:
        return ""
    return f"These are the first {n_shown:,} of {reading.n_all:,} tokens; so that the page stays small, it ends here."

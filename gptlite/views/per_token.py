"""The HTML page that colours each token of a text by its surprise, -log2 p."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gptlite.tokenizers.base import labels, readable
from gptlite.views.page import page, rounded

if TYPE_CHECKING:
    from gptlite.inference.inspect import TokenScores

PEAKS = 12  # most surprising tokens in the list


def per_token_page(
    title: str,
    scores: TokenScores,
    pieces: Sequence[bytes],
    end_id: int,
    *,
    block_size: int,
    n_all: int,
    first_id: int | None = None,
) -> str:
    """Return the page. title: a line about model and text. pieces: the bytes of every id. end_id: that of end-of-text.

    first_id: the first token, where it is not scored but shown. n_all: the tokens of the text, of which these are the
    first.
    """
    bits = scores.nats / math.log(2)
    n_bytes = sum(len(pieces[i]) for i in scores.ids.tolist())
    texts = {
        "window": f"{block_size:,}",
        "bits_per_byte": f"{bits.sum() / n_bytes:.4f}" if n_bytes else "no",
        "mean": f"{bits.mean():.3f}",
        "tokens": f"{len(bits):,}",
        "bytes": f"{n_bytes:,}",
        "cut": f"These are the first {len(bits):,} of {n_all:,} tokens, to keep the page small."
        if n_all > len(bits)
        else "",
    }
    columns = (scores.ids.tolist(), rounded(bits), scores.ranks.tolist(), scores.top_ids.tolist())
    rows = zip(*columns, rounded(scores.top_probabilities, 3), strict=True)
    data = {
        "tokens": [  # text, id, bits, rank, and the most likely ids with their probabilities
            [readable(pieces[i]), i, surprise, rank, list(zip(top, probabilities, strict=True))]
            for i, surprise, rank, top, probabilities in rows
        ],
        "labels": labels(pieces, np.unique(np.concatenate([scores.ids, scores.top_ids.ravel()])).tolist(), end_id),
        "context": None if first_id is None else {"text": readable(pieces[first_id]), "id": first_id},
        "peaks": np.argsort(-bits, kind="stable")[:PEAKS].tolist(),
        "end": end_id,
    }
    return page("per_token", "The surprise of each token", title, texts, data)

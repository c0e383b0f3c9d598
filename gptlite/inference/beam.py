"""Beam search: the most likely continuation, searched for instead of drawn.

Shapes: W beams, V = vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.config.training import SampleSection
from gptlite.inference.engine import DecodingBatch
from gptlite.inference.generate import FinishReason
from gptlite.inference.sampling import TokenFlags
from gptlite.model.gpt import GPT

EndOfText = Callable[[Sequence[int]], FinishReason | None]


def length_penalised(logprob: float, length: int, params: SampleSection) -> float:
    """Return the score of a text: log p / length ** length_penalty.

    0 compares sums, which favours short texts, 1 the mean per token, and more favours long texts. A token that ends a
    text counts in its length.
    """
    return logprob / float(length**params.beam_length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation. A token that ended it counts in logprob and score, but is not among its tokens."""

    tokens: tuple[int, ...]
    logprob: float  # of all tokens together, in nats
    score: float
    reason: FinishReason


@dataclass(frozen=True)
class Beam:
    """A continuation that is searched further, or a candidate for one."""

    tokens: tuple[int, ...]
    logprob: float  # of all tokens together, in nats


@dataclass(frozen=True)
class SearchStep:
    """One step of a search: its beams with the logits after each, (W, V), and what was taken of their extensions."""

    beams: Sequence[Beam]
    logits: Tensor
    active: Sequence[Beam]  # the beams of the next step
    ended: Mapping[tuple[int, ...], FinishReason]  # the tokens of texts that ended, each with the reason


def beam_search(
    model: GPT,
    prompt: Sequence[int],
    params: SampleSection,
    *,
    suppressed: TokenFlags,
    end_of_text: EndOfText,
    watch: Callable[[SearchStep], None] | None = None,
) -> list[Hypothesis]:
    """Return the best continuations found of a prompt (at least one id), at most `beams` of them, the best first.

    end_of_text: why these tokens end with their last, None where they go on. With V ** (length - 1) beams the search is
    exact; with one beam, and no text that ends, it is greedy decoding. It stops when no beam can overtake the worst of
    `beams` finished texts any more.

    watch: is called with each step.
    """
    assert params.beams is not None
    width, max_length = params.beams, params.max_new_tokens
    batch = DecodingBatch(model, [prompt], max_length - 1)
    beams, finished = [Beam((), 0.0)], list[Hypothesis]()
    for length in range(1, max_length + 1):
        rows, active, ended = list[int](), list[Beam](), dict[tuple[int, ...], FinishReason]()
        for rank, (row, beam) in enumerate(_extensions(beams, batch.logits, suppressed, params, width)):
            if rank >= width and len(active) == width:
                break
            reason = end_of_text(beam.tokens) or ("length" if length == max_length else None)
            if reason is None:
                rows.append(row)
                active.append(beam)
            elif rank < width:
                tokens = beam.tokens if reason in ("length", "stop text") else beam.tokens[:-1]
                score = length_penalised(beam.logprob, length, params)
                finished.append(Hypothesis(tokens, beam.logprob, score, reason))
                ended[beam.tokens] = reason
        if watch is not None:
            watch(SearchStep(beams, batch.logits, active, ended))
        finished = sorted(finished, key=lambda text: -text.score)[:width]
        if not active or (len(finished) == width and not _can_improve(active[0].logprob, length, finished, params)):
            break
        batch.select(rows)
        batch.read([beam.tokens[-1] for beam in active])
        beams = active
    return finished


def _extensions(
    beams: Sequence[Beam], logits: Tensor, suppressed: TokenFlags, params: SampleSection, width: int
) -> Iterator[tuple[int, Beam]]:
    """Yield texts that are one token longer, the most likely first, each with the row of its beam. logits: (W, V).

    At least so many that `width` of them can go on: one end-of-text and stop_tokens may end each beam, and with stop
    texts any text may end.
    """
    so_far = torch.tensor([[beam.logprob] for beam in beams], dtype=torch.float64)
    logprobs = so_far + token_logprobs(logits, suppressed)
    enough = (2 + len(params.stop_tokens)) * width
    best, places = logprobs.flatten().topk(logprobs.numel() if params.stop else min(enough, logprobs.numel()))
    for place, logprob in zip(places.tolist(), best.tolist(), strict=True):
        if logprob == -math.inf:
            return
        row, token = divmod(place, logits.size(-1))
        yield row, Beam((*beams[row].tokens, token), logprob)


def token_logprobs(logits: Tensor, suppressed: TokenFlags) -> Tensor:
    """Return log p of each token, -inf where it is suppressed: (W, V) in fp64."""
    return torch.log_softmax(logits.double(), dim=-1).masked_fill(torch.from_numpy(suppressed), -math.inf)


def _can_improve(best: float, length: int, finished: Sequence[Hypothesis], params: SampleSection) -> bool:
    """Return whether a beam with log p `best` after `length` tokens can still overtake the worst of the finished."""
    # log p only falls. Divided by a growing length the score can still rise: at best log p stays as it is to the end.
    longest = params.max_new_tokens if params.beam_length_penalty > 0 else length + 1
    return length_penalised(best, longest, params) > finished[-1].score

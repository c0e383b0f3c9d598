"""Beam search: the most likely continuation, searched for instead of drawn.

Shapes: W beams, V = vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.config.sampling import SampleSection
from gptlite.inference.engine import DecodingBatch
from gptlite.inference.generate import FinishReason
from gptlite.inference.sampling import TokenFlags
from gptlite.model.gpt import GPT

ALTERNATIVES = 5  # the likeliest tokens of each beam, which are recorded with those that were taken

EndOfText = Callable[[Sequence[int]], FinishReason | None]


def length_penalised(logprob: float, length: int, params: SampleSection) -> float:
    """The score of a text: log p / length ** length_penalty.

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
class Candidate:
    """A beam with one token more. It was pruned if it neither goes on (next_beam) nor ended (reason)."""

    beam: int  # the number of the beam among those of its step
    token: int
    logprob: float  # of the token, in nats
    total: float  # log p of all tokens together
    next_beam: int | None  # its number among the beams of the next step
    reason: FinishReason | None


@dataclass(frozen=True)
class _Beam:
    tokens: tuple[int, ...]
    logprob: float


def beam_search(
    model: GPT,
    prompt: Sequence[int],
    params: SampleSection,
    *,
    suppressed: TokenFlags,
    end_of_text: EndOfText,
    record: list[list[Candidate]] | None = None,
) -> list[Hypothesis]:
    """Return the best continuations found of a prompt (at least one id), at most `beams` of them, the best first.

    end_of_text: why these tokens end with their last, None where they go on. With V ** (length - 1) beams the search is
    exact; with one beam, and no text that ends, it is greedy decoding. It stops when no beam can overtake the worst of
    `beams` finished texts any more.

    record: at each step, a list is appended of every candidate that was taken and of the ALTERNATIVES likeliest ones of
    each beam; beam by beam, the likeliest first.
    """
    assert params.beams is not None
    width, max_length = params.beams, params.max_new_tokens
    batch = DecodingBatch(model, [prompt], max_length - 1)
    beams, finished = [_Beam((), 0.0)], list[Hypothesis]()
    for length in range(1, max_length + 1):
        rows, active, ended = list[int](), list[_Beam](), dict[tuple[int, ...], FinishReason]()
        for rank, (row, beam) in enumerate(_extensions(beams, batch.logits, suppressed, params)):
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
        if record is not None:
            record.append(list(_candidates(beams, batch.logits, suppressed, active, ended)))
        finished = sorted(finished, key=lambda found: -found.score)[:width]
        if not active or not _can_improve(active[0].logprob, length, finished, params):
            break
        batch.select(rows)
        batch.read([beam.tokens[-1] for beam in active])
        beams = active
    return finished


def _extensions(
    beams: Sequence[_Beam], logits: Tensor, suppressed: TokenFlags, params: SampleSection
) -> Iterator[tuple[int, _Beam]]:
    """Yield texts that are one token longer, the most likely first, each with the row of its beam. logits: (W, V).

    At least so many that `beams` of them can go on: one end-of-text and stop_tokens may end each beam, and with stop
    texts any text may end.
    """
    assert params.beams is not None
    so_far = torch.tensor([[beam.logprob] for beam in beams], dtype=torch.float64)
    logprobs = so_far + _token_logprobs(logits, suppressed)
    enough = (2 + len(params.stop_tokens)) * params.beams
    best, places = logprobs.flatten().topk(logprobs.numel() if params.stop else min(enough, logprobs.numel()))
    for place, logprob in zip(places.tolist(), best.tolist(), strict=True):
        if logprob == -math.inf:
            return
        row, token = divmod(place, logits.size(-1))
        yield row, _Beam((*beams[row].tokens, token), logprob)


def _token_logprobs(logits: Tensor, suppressed: TokenFlags) -> Tensor:
    """log p of each token, -inf where it is suppressed: (W, V) in fp64."""
    return torch.log_softmax(logits.double(), dim=-1).masked_fill(torch.from_numpy(suppressed), -math.inf)


def _candidates(
    beams: Sequence[_Beam],
    logits: Tensor,
    suppressed: TokenFlags,
    active: Sequence[_Beam],
    ended: Mapping[tuple[int, ...], FinishReason],
) -> Iterator[Candidate]:
    """Yield what `beam_search` records of a step. active, ended: the candidates that were taken. logits: (W, V)."""
    next_beams = {beam.tokens: number for number, beam in enumerate(active)}
    for row, (beam, logprobs) in enumerate(zip(beams, _token_logprobs(logits, suppressed), strict=True)):
        likeliest = logprobs.topk(min(ALTERNATIVES, len(logprobs))).indices.tolist()
        taken = [tokens[-1] for tokens in (*next_beams, *ended) if tokens[:-1] == beam.tokens]
        for token in sorted({*likeliest, *taken}, key=lambda token: -float(logprobs[token])):
            logprob, tokens = float(logprobs[token]), (*beam.tokens, token)
            if logprob > -math.inf:
                total = beam.logprob + logprob
                yield Candidate(row, token, logprob, total, next_beams.get(tokens), ended.get(tokens))


def _can_improve(best: float, length: int, finished: Sequence[Hypothesis], params: SampleSection) -> bool:
    """True if a beam with log p `best` after `length` tokens can still become one of the best `beams` texts."""
    if len(finished) < (params.beams or 0):
        return True
    # log p only falls. Divided by a growing length the score can still rise: at best log p stays as it is to the end.
    longest = params.max_new_tokens if params.beam_length_penalty > 0 else length + 1
    return length_penalised(best, longest, params) > finished[-1].score

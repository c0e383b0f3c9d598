"""Beam search: the continuation that scores best, rather than one that is drawn.

Shapes: W beams, V = vocab_size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptlite.config.sampling import SampleSection
from gptlite.inference.engine import DecodingBatch
from gptlite.inference.filters import Flags
from gptlite.inference.generate import FinishReason
from gptlite.inference.sampling import check
from gptlite.model.gpt import GPT


@dataclass(frozen=True)
class BeamSearch:
    """How wide to search, and when to stop.

    The score of a text is log p / length ** length_penalty: 0 compares sums, which favours short texts, 1 the mean per
    token, more favours long ones. A token that ends a text counts as one of it.
    """

    width: int
    max_new_tokens: int = 200
    length_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check(
            self,
            width=(self.width >= 1, "a whole number >= 1"),
            max_new_tokens=(self.max_new_tokens >= 1, "a whole number >= 1"),
            length_penalty=(abs(self.length_penalty) <= 10, "a number from -10 to 10"),
            stop=("" not in self.stop, "texts that are not empty"),
        )

    @classmethod
    def of(cls, section: SampleSection) -> BeamSearch:
        """What a config asks for, its `beams` not None."""
        assert section.beams is not None
        stop, stop_tokens = tuple(section.stop), tuple(section.stop_tokens)
        return cls(section.beams, section.max_new_tokens, section.beam_length_penalty, stop, stop_tokens)

    def score(self, logprob: float, length: int) -> float:
        """Of a text of `length` tokens, log p in nats."""
        return logprob / float(length**self.length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """A finished continuation; a token that ended it is not among its tokens, but counts in its figures."""

    tokens: tuple[int, ...]
    logprob: float  # of all tokens together, in nats
    score: float
    reason: FinishReason


@dataclass(frozen=True)
class _Beam:
    tokens: tuple[int, ...]
    logprob: float


Ending = Callable[[Sequence[int]], FinishReason | None]


def beam_search(
    model: GPT, prompt: Sequence[int], how: BeamSearch, *, suppressed: Flags, ending: Ending
) -> list[Hypothesis]:
    """The best continuations of a prompt (one id or more) that were found, at most `width`, the best first.

    ending: why the tokens so far end with their last, None where they go on. With a width of V ** (length - 1) nothing
    is lost on the way and the best is exact; with 1, and no ends, it is greedy decoding. The search is over when no
    beam can overtake the worst of `width` finished texts, however it goes on.
    """
    contexts = DecodingBatch(model, [prompt], how.max_new_tokens - 1)
    beams, finished = [_Beam((), 0.0)], list[Hypothesis]()
    for length in range(1, how.max_new_tokens + 1):
        rows, active = list[int](), list[_Beam]()
        for rank, (row, beam) in enumerate(_extended(beams, contexts.logits, suppressed, how)):
            if rank >= how.width and len(active) == how.width:
                break
            reason = ending(beam.tokens) or ("length" if length == how.max_new_tokens else None)
            if reason is None:
                rows.append(row)
                active.append(beam)
            elif rank < how.width:
                tokens = beam.tokens if reason in ("length", "stop text") else beam.tokens[:-1]
                finished.append(Hypothesis(tokens, beam.logprob, how.score(beam.logprob, length), reason))
        finished = sorted(finished, key=lambda found: -found.score)[: how.width]
        if not active or not _can_improve(active[0].logprob, length, finished, how):
            break
        contexts.select(rows)
        contexts.read([beam.tokens[-1] for beam in active])
        beams = active
    return finished


def _extended(
    beams: Sequence[_Beam], logits: Tensor, suppressed: Flags, how: BeamSearch
) -> Iterator[tuple[int, _Beam]]:
    """Texts of one token more, the likeliest first, each with the row of the beam that it extends. logits: (W, V).

    As many as there must be for `width` of them to go on: of those of a beam, end-of-text and stop_tokens end; any
    may end in a stop text.
    """
    so_far = torch.tensor([[beam.logprob] for beam in beams], dtype=torch.float64)
    logprobs = so_far + torch.log_softmax(logits.double(), dim=-1).masked_fill(torch.from_numpy(suppressed), -math.inf)
    enough = (2 + len(how.stop_tokens)) * how.width
    best, places = logprobs.flatten().topk(logprobs.numel() if how.stop else min(enough, logprobs.numel()))
    for place, logprob in zip(places.tolist(), best.tolist(), strict=True):
        if logprob == -math.inf:
            return
        row, token = divmod(place, logits.size(-1))
        yield row, _Beam((*beams[row].tokens, token), logprob)


def _can_improve(best: float, length: int, finished: Sequence[Hypothesis], how: BeamSearch) -> bool:
    """Whether a beam with log p `best` after `length` tokens can still become one of the best `width`."""
    if len(finished) < how.width:
        return True
    # log p only falls. Divided by a growing length it may still rise: at best it stays as it is to the end.
    return how.score(best, how.max_new_tokens if how.length_penalty > 0 else length + 1) > finished[-1].score

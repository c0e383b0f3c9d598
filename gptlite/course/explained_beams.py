"""A beam search step by step: the candidates of each step, those that were taken and the likeliest others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gptlite.config.training import SampleSection
from gptlite.inference.beam import Hypothesis, SearchStep, token_logprobs
from gptlite.inference.generate import FinishReason
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.sampling import TokenFlags

ALTERNATIVES = 5  # the likeliest tokens of each beam, beside those that were taken


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
class ExplainedSearch:
    """The best texts of a search with their hypotheses, the best first, and the candidates of every step."""

    texts: Sequence[tuple[str, Hypothesis]]
    steps: Sequence[Sequence[Candidate]]


def explain_search(model: LanguageModel, prompt: str, params: SampleSection) -> ExplainedSearch:
    """Search as `LanguageModel.search` does, and record every step."""
    steps = list[list[Candidate]]()
    texts = model.search(prompt, params, watch=lambda step: steps.append(list(find_candidates(step, model.suppressed))))
    return ExplainedSearch(texts, steps)


def find_candidates(step: SearchStep, suppressed: TokenFlags) -> Iterator[Candidate]:
    """Yield each candidate that was taken and the ALTERNATIVES likeliest, beam by beam, the likeliest first."""
    next_beams = {beam.tokens: number for number, beam in enumerate(step.active)}
    for number, (beam, logprobs) in enumerate(zip(step.beams, token_logprobs(step.logits, suppressed), strict=True)):
        likeliest = logprobs.topk(min(ALTERNATIVES, len(logprobs))).indices.tolist()
        taken = [tokens[-1] for tokens in (*next_beams, *step.ended) if tokens[:-1] == beam.tokens]
        for token in sorted({*likeliest, *taken}, key=lambda token: -float(logprobs[token])):
            logprob, tokens = float(logprobs[token]), (*beam.tokens, token)
            if logprob > -math.inf:
                total = beam.logprob + logprob
                yield Candidate(number, token, logprob, total, next_beams.get(tokens), step.ended.get(tokens))

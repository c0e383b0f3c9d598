"""The recorded steps of a beam search against a calculation by hand and a plain search."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from random_gpt import random_gpt

from gptlite.config.training import SampleSection
from gptlite.course.explained_beams import Candidate, find_candidates
from gptlite.inference.beam import beam_search
from gptlite.model.gpt import GPT


def gpt(seed: int, vocab_size: int, **values) -> GPT:
    return random_gpt(
        vocab_size, seed, spread=1.0, **{"n_layer": 1, "n_head": 1, "n_embd": 4, "block_size": 8, **values}
    )


def recorded(
    model: GPT, prompt: list[int], beams: int, length: int, end: int, never: int = -1
) -> list[list[Candidate]]:
    """The candidates of each step of a search that compares sums. end: the token that ends texts."""
    suppressed, steps = np.arange(model.vocab_size) == never, []
    search = partial(
        beam_search,
        model,
        prompt,
        SampleSection(beams=beams, max_new_tokens=length, length_penalty=0.0),
        suppressed=suppressed,
        end_of_text=lambda tokens: "end of text" if tokens[-1] == end else None,
    )
    assert search(watch=lambda step: steps.append(list(find_candidates(step, suppressed)))) == search()
    return steps


def test_the_recorded_tree_is_that_of_a_hand_calculation():
    # Tokens 0 and 1 go on, with p = 0.4 and 0.1, 2 ends a text, with 0.3, and 3 is never generated. Two beams: step 1
    # takes 0.4, the end, and 0.1, as an end is no beam. Step 2 is the last: of 0.16, 0.12, 0.04, ... it takes the first
    # two.
    model = gpt(0, 4, position="none")
    for p in model.parameters():
        p.zero_()
    model.head.bias = torch.nn.Parameter(
        torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64).log(), requires_grad=False
    )

    def row(found: Candidate) -> tuple:
        p, product = (round(math.exp(logprob), 9) for logprob in (found.logprob, found.total))
        return found.beam, found.token, p, product, found.next_beam, found.reason

    assert [[row(found) for found in step] for step in recorded(model, [0], 2, 2, end=2, never=3)] == [
        [(0, 0, 0.4, 0.4, 0, None), (0, 2, 0.3, 0.3, None, "end of text"), (0, 1, 0.1, 0.1, 1, None)],
        [
            (0, 0, 0.4, 0.16, None, "length"),
            (0, 2, 0.3, 0.12, None, "end of text"),
            (0, 1, 0.1, 0.04, None, None),
            (1, 0, 0.4, 0.04, None, None),
            (1, 2, 0.3, 0.03, None, None),
            (1, 1, 0.1, 0.01, None, None),
        ],
    ]


@pytest.mark.parametrize("seed", range(8))
def test_the_recorded_tree_is_that_of_a_plain_search(seed):
    V, width, length, prompt = 8, 1 + seed % 4, 5, [1, 2]
    model = gpt(seed, V)
    steps = recorded(model, prompt, width, length, end=-1)
    beams = {(): 0.0}
    for number, step in enumerate(steps):
        every = {}
        for text, total in beams.items():
            logprobs = torch.log_softmax(model(torch.tensor([[*prompt, *text]]))[0, -1], dim=-1).tolist()
            every |= {(*text, token): (total + logprobs[token], logprobs[token]) for token in range(V)}
        kept = dict(sorted(every.items(), key=lambda item: -item[1][0])[:width])
        texts = list(beams)
        for found in step:
            text = (*texts[found.beam], found.token)
            assert (found.total, found.logprob) == pytest.approx(every[text], rel=1e-6)
            assert found.reason == ("length" if number == length - 1 and text in kept else None)
            assert found.next_beam == (list(kept).index(text) if number < length - 1 and text in kept else None)
        best = {
            text
            for beam in texts
            for text in sorted((t for t in every if t[:-1] == beam), key=lambda t: -every[t][0])[:5]
        }
        assert {(*texts[found.beam], found.token) for found in step} == best | set(kept)
        beams = {text: total for text, (total, _) in kept.items()}
    assert len(steps) == length

"""Beam search against all possible texts of very small models, and against transformers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from random_gpt import language_model, random_gpt

from gptlite.config.schema import ModelSection
from gptlite.config.training import SampleSection
from gptlite.inference import beam
from gptlite.inference.beam import Hypothesis, SearchStep, beam_search
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import hf_config, to_gpt2
from gptlite.tokenizers.bpe import train_bpe
from gptlite.tokenizers.char import CharTokenizer


def search_params(beams: int, max_new_tokens: int = 200, length_penalty: float = 1.0, **more) -> SampleSection:
    return SampleSection(beams=beams, max_new_tokens=max_new_tokens, length_penalty=length_penalty, **more)


def gpt(seed: int, vocab_size: int, **values) -> GPT:
    return random_gpt(
        vocab_size, seed, spread=1.0, **{"n_layer": 1, "n_head": 1, "n_embd": 4, "block_size": 8, **values}
    )


def unigram(*probabilities: float) -> GPT:
    """A model in which every token has this probability, whatever came before."""
    model = gpt(0, len(probabilities), position="none")
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
        model.head.bias = torch.nn.Parameter(torch.tensor(probabilities, dtype=torch.float64).log())
    return model


def all_scores(
    model: GPT, prompt: list[int], params: SampleSection, end: int, suppressed: set[int]
) -> dict[tuple, float]:
    """The score of every possible text: up to max_new_tokens tokens ending in `end`, or exactly so many without it."""
    V, length = model.vocab_size, params.max_new_tokens
    middle = [token for token in range(V) if token not in suppressed]
    texts = []
    for n in range(1, length + 1):
        for tokens in itertools.product(middle, repeat=n):
            if end not in tokens[:-1] and (tokens[-1] == end or n == length):
                texts.append(tokens)
    scores = {}
    for tokens in texts:
        logprobs = torch.log_softmax(model(torch.tensor([[*prompt, *tokens]]))[0], dim=-1)
        total = sum(float(logprobs[len(prompt) - 1 + i, token]) for i, token in enumerate(tokens))
        scores[tokens] = total / len(tokens) ** params.length_penalty
    return scores


def found_by(
    model: GPT,
    prompt: list[int],
    params: SampleSection,
    end: int,
    suppressed: set[int] = frozenset(),
    watch: Callable[[SearchStep], None] | None = None,
) -> list[Hypothesis]:
    mask = np.array([token in suppressed for token in range(model.vocab_size)])
    return beam_search(
        model,
        prompt,
        params,
        suppressed=mask,
        end_of_text=lambda tokens: "end of text" if tokens[-1] == end else None,
        watch=watch,
    )


@pytest.mark.parametrize("seed", range(30))
def test_enough_beams_find_the_best_of_all_texts(seed):
    rng = np.random.default_rng(seed)
    V, length = [(2, 4), (3, 3), (4, 3), (5, 2), (3, 4)][seed % 5]
    end = int(rng.integers(V)) if seed % 3 else -1
    suppressed = {int(rng.integers(V))} - {end} if V > 2 and seed % 2 else set()
    params = search_params(V ** (length - 1), length, float(rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0])))
    model, prompt = gpt(seed, V), rng.integers(0, V, rng.integers(1, 4)).tolist()
    scores = all_scores(model, prompt, params, end, suppressed)
    best = found_by(model, prompt, params, end, suppressed)[0]
    text = best.tokens if best.reason == "length" else (*best.tokens, end)
    assert best.score == pytest.approx(max(scores.values()), rel=1e-6)
    assert scores[text] == pytest.approx(best.score, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_one_beam_is_greedy_also_past_the_context(seed, windows):
    model, text = gpt(seed, 6, n_layer=2, block_size=5), [1, 2]
    for window in windows(2, 14, 5):
        text.append(int(model(torch.tensor([[text[i] for i in window]]))[0, -1].argmax()))
    [found] = found_by(model, [1, 2], search_params(1, 15), end=-1)
    assert [1, 2, *found.tokens] == text
    assert found.reason == "length"


def test_stop_texts_of_one_token_end_beams_as_stop_tokens_do():
    for seed in range(30):
        model = language_model(gpt(seed, 8), CharTokenizer("abcdefg"))
        by_text = model.search("a", search_params(2, 6, 3.0, stop=list("bcdef"), n=2))
        by_token = model.search("a", search_params(2, 6, 3.0, stop_tokens=[1, 2, 3, 4, 5], n=2))
        assert [text for text, _ in by_text] == [text for text, _ in by_token]
        assert [found.score for _, found in by_text] == pytest.approx([found.score for _, found in by_token])
        assert len({text for text, _ in by_text}) == len(by_text)


def test_a_stop_text_inside_a_token_leaves_the_text_before_it():
    tokenizer = train_bpe(["abcd abcd"], 260)
    [word] = tokenizer.encode("abcd").tolist()
    cfg = ModelSection(n_layer=1, n_head=1, n_embd=4, block_size=8)
    model = GPT(cfg, tokenizer.vocab_size, rng=torch.Generator().manual_seed(0)).requires_grad_(False)
    model.head.bias = torch.nn.Parameter(torch.zeros(tokenizer.vocab_size), requires_grad=False)
    model.head.bias[word] = 20.0  # nearly all of the probability
    [(text, found)] = language_model(model, tokenizer).search("x", search_params(1, stop=["c"]))
    assert (text, found.tokens, found.reason) == ("ab", (word,), "stop text")


@pytest.mark.parametrize("penalty", [-0.5, 0.0, 1.0, 2.0])
def test_a_search_that_stops_early_finds_the_same_texts(penalty, monkeypatch):
    can_improve, answers = beam._can_improve, []

    def bounded(*where) -> bool:
        answers.append(can_improve(*where))
        return answers[-1]

    for seed, width in itertools.product((1, 3, 5, 8, 9, 11), (2, 3)):
        model, params = gpt(seed, 6, block_size=32), search_params(width, 20, penalty)
        monkeypatch.setattr(beam, "_can_improve", bounded)
        early = found_by(model, [0], params, end=5)
        monkeypatch.setattr(beam, "_can_improve", lambda *_: True)
        assert early == found_by(model, [0], params, end=5)
    # Above 1, a text that goes on to the end could overtake any that these searches find.
    assert penalty > 1 or not all(answers)


def test_a_larger_length_penalty_favours_longer_texts():
    # p(end) = 0.4 at each step, each of two other tokens 0.3: sums favour the shortest, means the longest.
    model = unigram(0.3, 0.3, 0.4)
    short, long = (found_by(model, [0], search_params(9, 3, penalty), end=2)[0] for penalty in (0.0, 3.0))
    assert (short.tokens, short.score) == ((), pytest.approx(math.log(0.4)))
    assert (len(long.tokens), long.reason) == (2, "end of text")
    assert long.score == pytest.approx((2 * math.log(0.3) + math.log(0.4)) / 27)


@pytest.mark.parametrize("seed", range(12))
def test_all_beams_with_their_scores_are_those_of_transformers(seed):
    from transformers import GPT2Config, GPT2LMHeadModel

    rng = np.random.default_rng(seed)
    V, length, prompt = 9, 7, rng.integers(0, 9, 3).tolist()
    params = search_params(int(rng.integers(1, 6)), length, float(rng.choice([-0.5, 0.0, 1.0, 2.0])))
    model = gpt(seed, V, n_layer=2, block_size=16)
    end = int(model(torch.tensor([prompt]))[0, -1].topk(3).indices[2])  # so that some texts end early
    theirs = GPT2LMHeadModel(GPT2Config(**hf_config(model.cfg, V, end))).double().train(False)
    theirs.load_state_dict({**theirs.state_dict(), **to_gpt2(model)})
    idx = torch.tensor([prompt])
    found = theirs.generate(
        idx,
        attention_mask=torch.ones_like(idx),
        pad_token_id=end,
        max_new_tokens=length,
        num_beams=params.beams,
        num_return_sequences=params.beams,
        length_penalty=params.length_penalty,
        early_stopping="never",
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    ours = found_by(model, prompt, params, end)
    written = [[*tokens.tolist(), end] for tokens in found.sequences[:, 3:]]
    assert [list(hypothesis.tokens) for hypothesis in ours] == [ids[: ids.index(end)] for ids in written]
    if params.beams > 1:  # transformers gives no score to its greedy text
        assert [hypothesis.score for hypothesis in ours] == pytest.approx(found.sequences_scores.tolist(), rel=1e-5)

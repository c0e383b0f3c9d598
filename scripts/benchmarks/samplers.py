"""Writing N_NEW tokens after a short prompt, as each project does it. Runs inside a worker.

A unit of work is all of them; the weights are random, and no text ends early.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.sizes import N_NEW, N_PROMPT, Size
from benchmarks.worker import Contender, timed

if TYPE_CHECKING:
    from gptlite.inference.language_model import LanguageModel

TEMPERATURE = 0.8


def hugging_face(**shape: int) -> Contender:
    """`generate` with its cache, drawing from all tokens."""
    from benchmarks.hugging_face import build

    model = build(Size(**shape)).train(False)
    prompt = torch.arange(N_PROMPT)[None]

    def write() -> None:
        written = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            use_cache=True,
            temperature=TEMPERATURE,
            top_k=0,
            max_new_tokens=N_NEW,
        )
        assert written.shape == (1, N_PROMPT + N_NEW)

    return timed(write), {"threads": torch.get_num_threads()}


def gptlite(n: int, **shape: int) -> Contender:
    """`n` samples by `gptlite sample`."""
    from gptlite.compute.device import settings
    from gptlite.config.training import SampleSection

    model = model_of(Size(**shape))

    def write() -> None:
        with settings(model.compute, deterministic=False):
            params = SampleSection(max_new_tokens=N_NEW, temperature=TEMPERATURE, seed=1, n=n)
            written = model.samples(prompt_of(model), params)
            assert [len("".join(sample)) for sample in written] == [N_NEW] * n

    return timed(write), {"threads": model.compute.threads}


def choosing(everything: bool, **shape: int) -> Contender:
    """One sample: only the seconds that are not spent in the model.

    With everything, every filter acts, and the text with its log p streams; without, tokens are drawn and no more.
    """
    from gptlite.compute.device import settings
    from gptlite.config.training import SampleSection
    from gptlite.inference.engine import DecodingBatch
    from gptlite.inference.generate import decode

    model = model_of(Size(**shape))
    plain = SampleSection(max_new_tokens=N_NEW, temperature=TEMPERATURE, seed=1)
    filters = {"top_k": 40, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1}
    stop = ["\0", "\0\0"]  # texts that never come
    params = plain.model_copy(update={**filters, "stop": stop})
    in_model = 0.0

    def counted(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call_and_count(*arguments: Any) -> Tensor:
            nonlocal in_model
            began_at = time.perf_counter()
            result = call(*arguments)
            in_model += time.perf_counter() - began_at
            return result

        return call_and_count

    DecodingBatch._hidden = counted(DecodingBatch._hidden)  # type: ignore[method-assign]  # in this process alone
    DecodingBatch._logits = counted(DecodingBatch._logits)  # type: ignore[method-assign]

    def write() -> int:
        if everything:
            [sample] = model.samples(prompt_of(model), params)
            return len("".join(sample))
        rngs = [np.random.default_rng(1)]
        ids = model.encode(prompt_of(model))
        return sum(1 for _ in decode(model.gpt, [ids], plain, rngs=rngs, suppressed=model.suppressed, active={0}))

    def turn(times: int) -> float:
        nonlocal in_model
        in_model, began_at = 0.0, time.perf_counter()
        with settings(model.compute, deterministic=False):
            for _ in range(times):
                assert write() == N_NEW
        return (time.perf_counter() - began_at - in_model) / times

    return turn, {"threads": model.compute.threads}


def model_of(size: Size) -> LanguageModel:
    """A model as `gptlite sample` loads it, with a tokenizer of as many characters as there are ids."""
    from gptlite.config.schema import ModelSection, RunSection
    from gptlite.inference.engine import store_for_decoding
    from gptlite.inference.language_model import LanguageModel
    from gptlite.model.gpt import GPT
    from gptlite.planning.auto import resolve_compute
    from gptlite.tokenizers.char import CharTokenizer

    section = ModelSection(
        n_layer=size.n_layer, n_head=size.n_head, n_embd=size.n_embd, block_size=size.block_size, activation="relu"
    )
    tokenizer = CharTokenizer("".join(chr(0x20 + i) for i in range(size.vocab_size - 1)))
    compute = resolve_compute(RunSection(device="cpu"), size.block_size)
    gpt = GPT(section, tokenizer.vocab_size, attention=compute.attention).requires_grad_(False)
    store_for_decoding(gpt)
    return LanguageModel(gpt, tokenizer, 0, "none", compute)


def prompt_of(model: LanguageModel) -> str:
    """A text of N_PROMPT tokens."""
    return model.tokenizer.decode(range(N_PROMPT))

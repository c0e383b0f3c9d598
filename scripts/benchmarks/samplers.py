"""Writing N_NEW tokens after a short prompt, as each project does it. Runs inside a worker.

A unit of work is all of them; the weights are random, and no text ends early.
"""

from __future__ import annotations

import torch

from benchmarks.sizes import N_NEW, N_PROMPT, Size
from benchmarks.worker import Contender, timed

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
    """`n` samples by `gptlite sample`, with a tokenizer of as many characters as there are ids."""
    from gptlite.compute.device import resolve, settings
    from gptlite.config.schema import ModelSection, RunSection
    from gptlite.inference.choosing import Decoding
    from gptlite.inference.engine import store_for_decoding
    from gptlite.inference.load import Facts, Model
    from gptlite.model.gpt import GPT
    from gptlite.tokenizers.char import CharTokenizer

    size = Size(**shape)
    section = ModelSection(
        n_layer=size.n_layer, n_head=size.n_head, n_embd=size.n_embd, block_size=size.block_size, activation="relu"
    )
    tokenizer = CharTokenizer("".join(chr(0x20 + i) for i in range(size.vocab_size - 1)))
    compute = resolve(RunSection(device="cpu"), size.block_size)
    gpt = GPT(section, tokenizer.vocab_size, attention=compute.attention).requires_grad_(False)
    store_for_decoding(gpt)
    model = Model(gpt, tokenizer, Facts(section, start_id=0, normalize="none"), compute)

    def write() -> None:
        with settings(compute, deterministic=False):
            written = model.samples(tokenizer.characters[:N_PROMPT], Decoding(N_NEW, TEMPERATURE), seed=1, n=n)
            assert [len("".join(pieces)) for pieces in written] == [N_NEW] * n

    return timed(write), {"threads": compute.threads}

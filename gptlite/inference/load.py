"""A trained model, ready to use: `gptlite.load("runs/small")`."""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gptlite import tokenizers
from gptlite.compute.device import Compute, resolve
from gptlite.config.loading import Override
from gptlite.config.schema import ModelSection, RunSection
from gptlite.data.batches import eval_windows
from gptlite.data.tokens import TokenArray, Tokens
from gptlite.errors import RunError, counted
from gptlite.inference.engine import store_for_decoding
from gptlite.inference.generate import Decoding, never, sample_seed, write
from gptlite.inference.score import Score, bytes_per_token, score
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import FORMAT_VERSION, from_gpt2
from gptlite.runs.checkpoint import Checkpoint, Damaged
from gptlite.runs.choosing import choose_checkpoint, config_of
from gptlite.runs.rundir import runs_folder
from gptlite.tokenizers.base import Tokenizer

SCORE_BATCH_SIZE = 32


@dataclass(frozen=True)
class Facts:
    """What config.json says beyond GPT-2's keys, under "gptlite": what a folder copied alone needs."""

    model: ModelSection
    start_id: int  # where sampling starts if the prompt is empty
    normalize: Literal["none", "nfc"]  # given to the training text, so also to prompts

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "model": self.model.model_dump(),
            "start_id": self.start_id,
            "normalize": self.normalize,
        }


def read_facts(checkpoint: Checkpoint) -> Facts:
    """The facts in a checkpoint's config.json; RunError if they are missing or of another version."""
    values: Mapping[str, Any] = checkpoint.read_json("config.json").get("gptlite", {})
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise RunError(
            f"{checkpoint.path}/config.json: format_version = {version}: this gptlite reads {FORMAT_VERSION}; "
            "use the version that wrote it"
        )
    return Facts(ModelSection.model_validate(values["model"]), int(values["start_id"]), values["normalize"])


def build_model(checkpoint: Checkpoint, facts: Facts, vocab_size: int, attention: str) -> GPT:
    """The model of a checkpoint, on the CPU. Damaged if its tensors do not fit its configuration."""
    model = GPT(facts.model, vocab_size, attention=attention)
    try:
        from_gpt2(checkpoint.read_model(), model)
    except ValueError as error:
        raise Damaged(f"{checkpoint.path}/model.safetensors: {error}: the checkpoint does not fit itself") from error
    return model


@dataclass(frozen=True)
class Model:
    """A model with the tokenizer and the conventions it was trained with."""

    gpt: GPT
    tokenizer: Tokenizer
    facts: Facts
    compute: Compute

    def __repr__(self) -> str:
        shape, vocabulary = self.facts.model, f"{self.tokenizer.kind} tokenizer of {self.tokenizer.vocab_size:,} ids"
        return (
            f"<Model: {self.gpt.n_parameters():,} parameters, {counted(shape.n_layer, 'layer')} of {shape.n_embd}, "
            f"context {shape.block_size}, {vocabulary}, on {self.compute.device}>"
        )

    @property
    def ends(self) -> bool:
        """Whether the training text was several documents, so that the model knows end-of-text."""
        return self.facts.start_id == self.tokenizer.eot_id

    def encode(self, text: str) -> list[int]:
        """Ids of a text in the normal form of the training text. DataError for characters that are not known."""
        if not isinstance(text, str):
            raise TypeError(f"text = {text!r}: a str is expected, not {type(text).__name__}")
        if self.facts.normalize == "nfc":
            text = unicodedata.normalize("NFC", text)
        return [int(i) for i in self.tokenizer.encode(text)]

    def prompt_ids(self, prompt: str) -> list[int]:
        """Ids of a prompt; an empty one becomes the id that texts start from."""
        return [self.facts.start_id] if prompt == "" else self.encode(prompt)

    def samples(self, prompt: str, how: Decoding, *, seed: int = 0, n: int = 1) -> Iterator[Iterator[str]]:
        """What `n` samples add to the prompt: the pieces of one, then those of the next.

        Sample i is the same for every `n`, up to the rounding of logits: its generator follows from (seed, i).
        """
        rngs = [torch.Generator().manual_seed(sample_seed(seed, i)) for i in range(n)]
        barred = never(self.tokenizer, ends=self.ends)
        # In fp32: one token at a time is bound by reading the weights, and casting them would read them twice.
        prompts = [self.prompt_ids(prompt)] * n
        return write(self.gpt, prompts, how, rngs=rngs, barred=barred, tokenizer=self.tokenizer)

    def stream(self, prompt: str, how: Decoding, *, seed: int = 0) -> Iterator[str]:
        """What the first sample adds to the prompt, piece by piece; equal arguments give equal text."""
        return next(self.samples(prompt, how, seed=seed))

    def generate(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> str:
        """What the model adds to the prompt."""
        how = Decoding(max_new_tokens, temperature, top_k, top_p, tuple(stop))
        return "".join(self.stream(prompt, how, seed=seed))

    def score(self, text: str, *, batch_size: int = SCORE_BATCH_SIZE) -> Score:
        """How surprising a text is. The first token is context only, unless end-of-text can go before it."""
        ids = self.encode(text)
        ids = [self.tokenizer.eot_id, *ids] if self.ends else ids
        return self.score_tokens(TokenArray(np.array(ids, dtype=np.uint32), "text"), batch_size=batch_size)

    def score_tokens(
        self, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE, first: int = 0, stride: int = 1
    ) -> Score:
        """The score of ids; the first is context only. Of its batches, only every `stride`-th from `first` on."""
        windows = eval_windows(tokens, self.facts.model.block_size, batch_size)
        return score(self.gpt, itertools.islice(windows, first, None, stride), self._lengths, self.compute)

    @functools.cached_property
    def _lengths(self) -> Tensor:
        return bytes_per_token(self.tokenizer)


def say_nothing(line: str) -> None:
    """What becomes of warnings unless someone wants them."""


def load(
    run: str | Path,
    *,
    checkpoint: str | None = None,
    device: str = "auto",
    root: Path | None = None,
    decoding: bool = False,
    warn: Callable[[str], None] = say_nothing,
) -> Model:
    """The model of a run (a folder, or a name under `root`, else GPTLITE_RUNS, else ./runs) or of a checkpoint folder.

    checkpoint: best (the default), latest, or a step. decoding: whether it will only write; on a CPU it then does so
    faster, and scores more slowly. warn: told in a line of each damaged checkpoint passed over.
    RunError where there is none that is whole.
    """
    found = choose_checkpoint(runs_folder() if root is None else root, str(run), checkpoint, warn)
    return load_checkpoint(found, config_of(found, [Override("device", "run.device", device)]).run, decoding=decoding)


def load_checkpoint(found: Checkpoint, section: RunSection, *, decoding: bool = False) -> Model:
    """The model of an opened checkpoint, computed as `section` says; decoding: as in `load`."""
    facts = read_facts(found)
    tokenizer = tokenizers.base.load(found.path)
    compute = resolve(section, facts.model.block_size)
    gpt = build_model(found, facts, tokenizer.vocab_size, compute.attention).to(compute.device)
    gpt.requires_grad_(False)
    if decoding and compute.device.type == "cpu":
        store_for_decoding(gpt)
    return Model(gpt, tokenizer, facts, compute)

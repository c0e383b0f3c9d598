"""A trained model, ready to use: `gptlite.load("runs/small")`."""

from __future__ import annotations

import functools
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
from gptlite.data.batches import eval_batches
from gptlite.data.eval_windows import EvalWindows
from gptlite.data.tokens import TokenArray, Tokens
from gptlite.errors import ConfigError, RunError
from gptlite.formatting import counted
from gptlite.inference.beam import BeamSearch, Hypothesis, beam_search
from gptlite.inference.engine import DecodingBatch, rows_at_once, store_for_decoding
from gptlite.inference.filters import Flags
from gptlite.inference.generate import FinishReason, Sample, Step, ends_of, sample_seed, write
from gptlite.inference.sampling import SamplingParams, suppressed_ids
from gptlite.inference.score import ByPosition, Score, by_position, bytes_and_chars_per_token, score
from gptlite.inference.stop_strings import whole_text
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import FORMAT_VERSION, from_gpt2
from gptlite.runs.checkpoint import Checkpoint, Damaged
from gptlite.runs.find import choose_checkpoint, config_of
from gptlite.runs.run import runs_folder
from gptlite.tokenizers.base import Tokenizer

SCORE_BATCH_SIZE = 32


@dataclass(frozen=True)
class ModelInfo:
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


def read_model_info(checkpoint: Checkpoint) -> ModelInfo:
    """The facts in a checkpoint's config.json; RunError if they are missing or of another version."""
    values: Mapping[str, Any] = checkpoint.read_json("config.json").get("gptlite", {})
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise RunError(
            f"{checkpoint.path}/config.json: format_version = {version}: this gptlite reads {FORMAT_VERSION}; "
            "use the version that wrote it"
        )
    return ModelInfo(ModelSection.model_validate(values["model"]), int(values["start_id"]), values["normalize"])


def build_model(checkpoint: Checkpoint, info: ModelInfo, vocab_size: int, attention: str) -> GPT:
    """The model of a checkpoint, on the CPU. Damaged if its tensors do not fit its configuration, RunError for nan."""
    model = GPT(info.model, vocab_size, attention=attention)
    try:
        from_gpt2(checkpoint.read_model(), model)
    except ValueError as error:
        raise Damaged(f"{checkpoint.path}/model.safetensors: {error}: the checkpoint does not fit itself") from error
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise RunError(f"{checkpoint.path}: {name} = not finite: the model is broken; choose another checkpoint")
    return model


@dataclass(frozen=True)
class LanguageModel:
    """A model with the tokenizer and the conventions it was trained with."""

    gpt: GPT
    tokenizer: Tokenizer
    info: ModelInfo
    compute: Compute

    def __repr__(self) -> str:
        shape, vocabulary = self.info.model, f"{self.tokenizer.kind} tokenizer of {self.tokenizer.vocab_size:,} ids"
        return (
            f"<Model: {self.gpt.n_parameters():,} parameters, {counted(shape.n_layer, 'layer')} of {shape.n_embd}, "
            f"context {shape.block_size}, {vocabulary}, on {self.compute.device}>"
        )

    @property
    def ends(self) -> bool:
        """Whether the training text was several documents, so that the model knows end-of-text."""
        return self.info.start_id == self.tokenizer.eot_id

    def encode(self, text: str) -> list[int]:
        """Ids of a text in the normal form of the training text. DataError for characters that are not known."""
        if not isinstance(text, str):
            raise TypeError(f"text = {text!r}: a str is expected, not {type(text).__name__}")
        return [int(i) for i in self.tokenizer.encode(self.normal(text))]

    def normal(self, text: str) -> str:
        """The text in the normal form of the training text."""
        return unicodedata.normalize("NFC", text) if self.info.normalize == "nfc" else text

    def known(self, text: str) -> str:
        """The text in the normal form of the training text, without what the tokenizer does not know."""
        return self.tokenizer.known(self.normal(text))

    def prompt_ids(self, prompt: str) -> list[int]:
        """Ids of a prompt; an empty one becomes the id that texts start from."""
        return [self.info.start_id] if prompt == "" else self.encode(prompt)

    def samples(
        self, prompts: str | Sequence[str], how: SamplingParams, *, seed: int = 0, n: int = 1, n_top_logprobs: int = 0
    ) -> Iterator[Sample]:
        """`n` samples of each prompt: all of the first, then those of the next.

        Sample i of a prompt is the same for every `n` and beside any other prompts, up to the rounding of logits: its
        generator follows from (seed, i). n_likeliest: how many alternatives are noted at each token.
        """
        self._check_stop_tokens(how.stop_tokens)
        texts = [self.prompt_ids(prompt) for prompt in ([prompts] if isinstance(prompts, str) else prompts)]
        # In fp32: one token at a time is bound by reading the weights, and casting them would read them twice.
        return write(
            self.gpt,
            [ids for ids in texts for _ in range(n)],
            how,
            seeds=[sample_seed(seed, i) for _ in texts for i in range(n)],
            suppressed=self.suppressed,
            tokenizer=self.tokenizer,
            n_top_logprobs=n_top_logprobs,
        )

    def generate(
        self,
        prompt: str = "",
        *,
        max_new_tokens: int = 200,
        temperature: float = 0.8,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        stop: Sequence[str] = (),
        stop_tokens: Sequence[int] = (),
        seed: int = 0,
    ) -> str:
        """What the model adds to the prompt; equal arguments give equal text."""
        how = SamplingParams(
            max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, tuple(stop), tuple(stop_tokens)
        )
        return next(self.samples([prompt], how, seed=seed)).whole().text

    def search(self, prompt: str, how: BeamSearch) -> list[tuple[str, Hypothesis]]:
        """The best texts that beam search finds, each with the best of its hypotheses, the best first."""
        self._check_stop_tokens(how.stop_tokens)
        most = rows_at_once(self.info.model)
        if how.width > most:
            raise ConfigError(f"at most {most} beams of this model fit in memory, not {how.width}", where="width")
        ends = ends_of(self.tokenizer, how.stop_tokens)

        def ending(tokens: Sequence[int]) -> FinishReason | None:
            text = self.tokenizer.decode(tokens) if how.stop else ""
            return "stop text" if any(stop in text for stop in how.stop) else ends.get(tokens[-1])

        found = beam_search(self.gpt, self.prompt_ids(prompt), how, suppressed=self.suppressed, ending=ending)
        best: dict[str, Hypothesis] = {}
        for hypothesis in found:  # several ways of cutting a text into tokens count once
            best.setdefault(whole_text(self.tokenizer, hypothesis.tokens, how.stop), hypothesis)
        return list(best.items())

    @torch.inference_mode()
    def logprobs(self, prompt: str, continuation: str) -> list[float]:
        """log p of each token of a continuation, in nats, as if the model had written it after the prompt.

        Prompt and continuation become tokens separately, as they do in sampling.
        """
        tokens = self.encode(continuation)
        contexts, of_each = DecodingBatch(self.gpt, [self.prompt_ids(prompt)], len(tokens)), list[float]()
        for before, token in zip([None, *tokens], tokens, strict=False):
            if before is not None:
                contexts.read([before])
            of_each += Step([0], [token], contexts.logits.numpy()).logprobs()
        return of_each

    def _check_stop_tokens(self, ids: Sequence[int]) -> None:
        unknown = [token for token in ids if not 0 <= token < self.tokenizer.vocab_size]
        if unknown:
            raise ConfigError(
                f"{unknown[0]} is no token id; ids go from 0 to {self.tokenizer.vocab_size - 1}", where="stop_tokens"
            )

    @functools.cached_property
    def suppressed(self) -> Flags:
        """True for ids that are never written: (V,)."""
        return suppressed_ids(self.tokenizer, ends=self.ends)

    def tokens_to_score(self, text: str) -> TokenArray:
        """The ids of a text as a document of its own: behind end-of-text, where texts end. DataError as `encode`."""
        ids = self.encode(text)
        return TokenArray(np.array([self.tokenizer.eot_id, *ids] if self.ends else ids, dtype=np.uint32))

    def windows(self, tokens: Tokens, stride: int | None = None) -> EvalWindows:
        """The windows in which ids are scored; see EvalWindows."""
        end = self.tokenizer.eot_id if self.ends else None
        return EvalWindows(tokens, self.info.model.block_size, stride=stride, end=end)

    def score(self, text: str, *, batch_size: int = SCORE_BATCH_SIZE, stride: int | None = None) -> Score:
        """How surprising a text is. Where texts end, its end too; else its first token is context only.

        stride: as for `score_tokens`.
        """
        return self.score_tokens(self.tokens_to_score(text), batch_size=batch_size, stride=stride)

    def score_tokens(
        self,
        tokens: Tokens,
        *,
        batch_size: int = SCORE_BATCH_SIZE,
        stride: int | None = None,
        first: int = 0,
        every: int = 1,
    ) -> Score:
        """The score of ids, document by document. Of its batches, only every `every`-th from `first` on.

        stride: how far apart windows start; None: block_size. With a smaller one each token has more context, at least
        block_size - stride tokens of its document, and scoring takes block_size / stride times as long.
        """
        windows = self.windows(tokens, stride)
        batches = eval_batches(windows, batch_size, first=first, every=every)
        return score(self.gpt, batches, self._extents, self.compute)

    def by_position(self, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE) -> ByPosition:
        """How surprising the tokens of `score_tokens` are by how many stand before them in their window."""
        batches = eval_batches(self.windows(tokens), batch_size)
        return by_position(self.gpt, batches, self.compute)

    @functools.cached_property
    def _extents(self) -> Tensor:
        return bytes_and_chars_per_token(self.tokenizer)


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
) -> LanguageModel:
    """The model of a run (a folder, or a name under `root`, else GPTLITE_RUNS, else ./runs) or of a checkpoint folder.

    checkpoint: best (the default), latest, or a step. decoding: whether it will only write; on a CPU it then does so
    faster, and scores more slowly. warn: told in a line of each damaged checkpoint passed over.
    RunError where there is none that is whole.
    """
    found = choose_checkpoint(runs_folder() if root is None else root, str(run), checkpoint, warn)
    return load_checkpoint(found, config_of(found, [Override("device", "run.device", device)]).run, decoding=decoding)


def load_checkpoint(found: Checkpoint, section: RunSection, *, decoding: bool = False) -> LanguageModel:
    """The model of an opened checkpoint, computed as `section` says; decoding: as in `load`."""
    info = read_model_info(found)
    tokenizer = tokenizers.base.load(found.path)
    compute = resolve(section, info.model.block_size)
    gpt = build_model(found, info, tokenizer.vocab_size, compute.attention).to(compute.device)
    gpt.requires_grad_(False)
    if decoding and compute.device.type == "cpu":
        store_for_decoding(gpt)
    return LanguageModel(gpt, tokenizer, info, compute)

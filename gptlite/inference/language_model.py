"""LanguageModel: a trained model with its tokenizer, ready to generate and score text."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.config.loading import Override, load_config
from gptlite.config.sampling import SampleSection
from gptlite.config.schema import ModelSection
from gptlite.data.dataset.batches import eval_batches
from gptlite.data.dataset.eval_windows import EvalWindows
from gptlite.data.dataset.tokens import TokenArray, Tokens
from gptlite.data.sources.charset import in_normal_form
from gptlite.errors import ConfigError
from gptlite.formatting import counted
from gptlite.inference.beam import Candidate, Hypothesis, beam_search
from gptlite.inference.engine import DecodingBatch, rows_at_once
from gptlite.inference.generate import FinishReason, Sample, Step, end_reasons, generate_batch
from gptlite.inference.sampling import TokenFlags, suppressed_ids
from gptlite.inference.score import ByPosition, Score, bytes_and_chars_per_token, score, score_by_position
from gptlite.inference.stop_strings import decode_until_stop
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import FORMAT_VERSION
from gptlite.seeds import mix
from gptlite.tokenizers.base import Tokenizer

SCORE_BATCH_SIZE = 32


@dataclass(frozen=True)
class ModelInfo:
    """The "gptlite" object in a checkpoint's config.json: what is needed to use the model beyond GPT-2's keys."""

    model: ModelSection
    start_id: int  # the id that an empty prompt stands for
    normalize: Literal["none", "nfc"]  # Unicode normal form of the training text, so also of prompts

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "model": self.model.model_dump(),
            "start_id": self.start_id,
            "normalize": self.normalize,
        }


@dataclass(frozen=True)
class LanguageModel:
    """A model with its tokenizer and the conventions of its training text."""

    gpt: GPT
    tokenizer: Tokenizer
    info: ModelInfo
    compute: Compute

    def __repr__(self) -> str:
        shape = self.info.model
        parameters = counted(self.gpt.n_parameters(), "parameter")
        tokenizer = f"{self.tokenizer.kind} tokenizer of {self.tokenizer.vocab_size:,} ids"
        return (
            f"<LanguageModel: {parameters}, {counted(shape.n_layer, 'layer')} of {shape.n_embd}, "
            f"context {shape.block_size}, {tokenizer}, on {self.compute.device}>"
        )

    @property
    def knows_end_of_text(self) -> bool:
        """True where the training text was several documents, so that the model has learned end-of-text."""
        return self.info.start_id == self.tokenizer.eot_id

    def encode(self, text: str) -> list[int]:
        """Encode a text, in the normal form of the training text. DataError for unknown characters."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        return [int(i) for i in self.tokenizer.encode(self.normalize(text))]

    def normalize(self, text: str) -> str:
        """The text in the Unicode normal form of the training text."""
        return in_normal_form(text, self.info.normalize)

    def drop_unknown(self, text: str) -> str:
        """The normalized text without the characters that the tokenizer does not know."""
        return self.tokenizer.known(self.normalize(text))

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encode a prompt; an empty one becomes the id that texts start with."""
        return [self.info.start_id] if prompt == "" else self.encode(prompt)

    def require_mask(self) -> None:
        """ConfigError for a model without a mask, which reads the tokens that it has to predict."""
        if self.info.model.sees_ahead:
            raise ConfigError(
                "this model has no mask (model.variant: no_mask). It reads the tokens that it has to predict, so it "
                "can be scored, but neither write nor show how it predicts. Use another run."
            )

    def samples(
        self, prompts: str | Sequence[str], params: SampleSection, *, n_top_logprobs: int = 0
    ) -> Iterator[Sample]:
        """Generate `n` samples of each prompt: all of the first, then those of the next.

        Up to the rounding of logits, sample i of a prompt depends on (seed, i) alone, not on `n` or the other prompts.
        n_top_logprobs: how many of the most likely tokens are recorded at each token.
        """
        self.require_mask()
        self._check_stop_tokens(params.stop_tokens)
        encoded = [self.encode_prompt(prompt) for prompt in ([prompts] if isinstance(prompts, str) else prompts)]
        # In fp32: decoding one token at a time is bound by reading the weights, and a cast would read them twice.
        return generate_batch(
            self.gpt,
            [ids for ids in encoded for _ in range(params.n)],
            params,
            seeds=[mix(params.seed, i) for _ in encoded for i in range(params.n)],
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
        """Continue the prompt; equal arguments give equal text. The arguments are those of the config's sample section.

        ConfigError for every value that the section refuses.
        """
        values: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "stop": list(stop),
            "stop_tokens": [operator.index(token) for token in stop_tokens],
            "seed": seed,
        }
        numbers = {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}
        overrides = [Override(key, f"sample.{key}", value) for key, value in numbers.items()]
        return next(self.samples([prompt], load_config(None, overrides).sample)).whole().text

    def search(
        self, prompt: str, params: SampleSection, *, record: list[list[Candidate]] | None = None
    ) -> list[tuple[str, Hypothesis]]:
        """Find the `n` best texts by beam search with `beams` beams, the best first.

        record: gets the candidates of each step, as `beam_search` says. ConfigError for too many beams, and for a
        length penalty where all texts are equally long.
        """
        self.require_mask()
        self._check_stop_tokens(params.stop_tokens)
        ends = self.knows_end_of_text or params.stop or params.stop_tokens
        if params.length_penalty is not None and not ends:
            raise ConfigError(
                "no text of this model ends before max_new_tokens, so all are equally long, and a length penalty "
                "changes no order. Leave it out, or end texts with --stop or --stop-token.",
                where="length_penalty",
            )
        assert params.beams is not None
        most = rows_at_once(self.info.model)
        if params.beams > most:
            raise ConfigError(
                f"at most {counted(most, 'beam')} of this model fit in memory, not {params.beams}.", where="beams"
            )
        reasons = end_reasons(self.tokenizer, params.stop_tokens)

        def end_of_text(tokens: Sequence[int]) -> FinishReason | None:
            text = self.tokenizer.decode(tokens) if params.stop else ""
            return "stop text" if any(stop in text for stop in params.stop) else reasons.get(tokens[-1])

        ids = self.encode_prompt(prompt)
        finished = beam_search(
            self.gpt, ids, params, suppressed=self.suppressed, end_of_text=end_of_text, record=record
        )
        best: dict[str, Hypothesis] = {}
        for found in finished:
            # A text that was found in several tokenizations counts once.
            best.setdefault(decode_until_stop(self.tokenizer, found.tokens, params.stop), found)
        return list(best.items())[: params.n]

    @torch.inference_mode()
    def logprobs(self, prompt: str, continuation: str) -> list[float]:
        """log p of each token of the continuation, in nats, as if the model had generated it after the prompt.

        Prompt and continuation are encoded separately, as in sampling.
        """
        self.require_mask()
        tokens = self.encode(continuation)
        batch, logprobs = DecodingBatch(self.gpt, [self.encode_prompt(prompt)], len(tokens)), list[float]()
        for i, token in enumerate(tokens):
            if i > 0:
                batch.read([tokens[i - 1]])
            logprobs += Step([0], [token], batch.logits.numpy()).logprobs()
        return logprobs

    def _check_stop_tokens(self, ids: Sequence[int]) -> None:
        unknown = [token for token in ids if not 0 <= token < self.tokenizer.vocab_size]
        if unknown:
            raise ConfigError(
                f"{unknown[0]} is not a token id. Ids are from 0 to {self.tokenizer.vocab_size - 1}.",
                where="stop_tokens",
            )

    @functools.cached_property
    def suppressed(self) -> TokenFlags:
        """True for ids that are never generated: (V,)."""
        return suppressed_ids(self.tokenizer, knows_end_of_text=self.knows_end_of_text)

    def tokens_to_score(self, text: str) -> TokenArray:
        """Encode a text as one document, after end-of-text if the model knows it. DataError as `encode`."""
        ids = self.encode(text)
        return TokenArray(np.array([self.tokenizer.eot_id, *ids] if self.knows_end_of_text else ids, dtype=np.uint32))

    def windows(self, tokens: Tokens, stride: int | None = None) -> EvalWindows:
        """The windows in which ids are scored, as EvalWindows describes them.

        A model without a mask would attend to padding, so its batches have none.
        """
        cfg, end = self.info.model, self.tokenizer.eot_id if self.knows_end_of_text else None
        return EvalWindows(tokens, cfg.block_size, stride=stride, end=end, padding=not cfg.sees_ahead)

    def score(self, text: str, *, batch_size: int = SCORE_BATCH_SIZE, stride: int | None = None) -> Score:
        """Score a text. A model that knows end-of-text scores every token and the end; others all but the first token.

        stride: as in `score_tokens`.
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
        """Score ids document by document; of the batches, only every `every`-th from `first` on.

        stride: how many tokens apart windows start; None: block_size. With a smaller stride each token has at least
        block_size - stride tokens of context in its document, and scoring takes block_size / stride times as long.
        """
        windows = self.windows(tokens, stride)
        batches = eval_batches(windows, batch_size, first=first, every=every)
        return score(self.gpt, batches, self._bytes_and_chars, self.compute)

    def score_by_position(self, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE) -> ByPosition:
        """The score of each position in the context."""
        return score_by_position(self.gpt, eval_batches(self.windows(tokens), batch_size), self.compute)

    @functools.cached_property
    def _bytes_and_chars(self) -> Tensor:
        return bytes_and_chars_per_token(self.tokenizer)

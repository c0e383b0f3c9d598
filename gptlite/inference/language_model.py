"""LanguageModel: a trained model with its tokenizer, ready to generate and score text."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.config.loading import Override, load_config
from gptlite.config.training import SampleSection
from gptlite.data.dataset.batches import EvalWindows, eval_batches
from gptlite.data.dataset.tokens import TokenArray, Tokens
from gptlite.data.sources.charset import in_normal_form
from gptlite.errors import ConfigError
from gptlite.formatting import counted
from gptlite.inference.beam import Hypothesis, SearchStep, beam_search
from gptlite.inference.engine import DecodingBatch
from gptlite.inference.generate import FinishReason, Sample, Step, TextStream, end_reasons, generate_batch
from gptlite.inference.sampling import TokenFlags
from gptlite.inference.score import Score, bytes_and_chars_per_token, score_windows
from gptlite.model.gpt import GPT
from gptlite.seeds import mix
from gptlite.tokenizers.base import Tokenizer

SCORE_BATCH_SIZE = 32
BLOCKS = 100  # of a text, whose scores show how much another text of its kind could change them


@dataclass(frozen=True)
class LanguageModel:
    """A model with its tokenizer and the conventions of its training text."""

    gpt: GPT
    tokenizer: Tokenizer
    start_id: int  # the id that an empty prompt stands for
    normal_form: Literal["none", "nfc"]  # of Unicode, of the training text, so also of prompts
    compute: Compute

    def __repr__(self) -> str:
        size, cfg = counted(self.gpt.n_parameters(), "parameter"), self.gpt.cfg
        shape = f"{counted(cfg.n_layer, 'layer')} of {cfg.n_embd}, context {cfg.block_size}"
        return f"<LanguageModel: {size}, {shape}, {self.tokenizer.kind} tokenizer, on {self.compute.device}>"

    def to_json(self) -> dict[str, Any]:
        """Return the "gptlite" object in a checkpoint's config.json: what using the model needs beyond GPT-2's keys."""
        return {"model": self.gpt.cfg.model_dump(), "start_id": self.start_id, "normalize": self.normal_form}

    @property
    def knows_end_of_text(self) -> bool:
        """True where the training text was several documents, so that the model has learned end-of-text."""
        return self.start_id == self.tokenizer.eot_id

    def encode(self, text: str) -> list[int]:
        """Encode a text, in the normal form of the training text. DataError for unknown characters."""
        return [int(i) for i in self.tokenizer.encode(self.normalize(text))]

    def normalize(self, text: str) -> str:
        """Return the text in the Unicode normal form of the training text."""
        return in_normal_form(text, self.normal_form)

    def encode_prompt(self, prompt: str) -> list[int]:
        """Encode a prompt; an empty one becomes the id that texts start with."""
        return [self.start_id] if prompt == "" else self.encode(prompt)

    def require_mask(self) -> None:
        """ConfigError for a model without a mask, which reads the tokens that it has to predict."""
        if self.gpt.cfg.sees_ahead:
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
        self._check_can_write(params)
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

    def generate(self, prompt: str = "", **keys: Any) -> str:
        """Continue the prompt; equal arguments give equal text.

        keys: those of the config's section sample (`config.training.SampleSection`), with its defaults, such as
        `temperature=0.8`; with `beams` the best text of a beam search. ConfigError for unknown keys and for every value
        that the section refuses.
        """
        # Numpy's numbers and any sequence become Python's own, which the config accepts.
        plain = json.loads(
            json.dumps(keys, default=lambda value: value.tolist() if hasattr(value, "tolist") else repr(value))
        )
        overrides = [Override(key, f"sample.{key}", value) for key, value in plain.items()]
        params = load_config(None, overrides).sample
        if params.n > 1:
            raise ConfigError("generate returns one text. Use samples() or search() for several.", where="n")
        if params.beams is not None:
            return self.search(prompt, params)[0][0]
        return next(self.samples([prompt], params)).whole().text

    def search(
        self, prompt: str, params: SampleSection, *, watch: Callable[[SearchStep], None] | None = None
    ) -> list[tuple[str, Hypothesis]]:
        """Find the `n` best texts by beam search with `beams` beams, the best first.

        watch: is called with each step. ConfigError for a length penalty where all texts are equally long.
        """
        self._check_can_write(params)
        ends = self.knows_end_of_text or params.stop or params.stop_tokens
        if params.length_penalty is not None and not ends:
            raise ConfigError(
                "no text of this model ends before max_new_tokens, so all are equally long, and a length penalty "
                "changes no order. Leave it out, or end texts with sample.stop or sample.stop_tokens.",
                where="length_penalty",
            )
        reasons = end_reasons(self.tokenizer, params.stop_tokens)

        def end_of_text(tokens: Sequence[int]) -> FinishReason | None:
            text = self.tokenizer.decode(tokens) if params.stop else ""
            return "stop text" if any(stop in text for stop in params.stop) else reasons.get(tokens[-1])

        best: dict[str, Hypothesis] = {}
        ids, suppressed = self.encode_prompt(prompt), self.suppressed
        for hypothesis in beam_search(
            self.gpt, ids, params, suppressed=suppressed, end_of_text=end_of_text, watch=watch
        ):
            # A text that was found in several tokenizations counts once.
            stream = TextStream(self.tokenizer, params.stop)
            text = "".join([*map(stream.feed, hypothesis.tokens), stream.finish()])
            best.setdefault(text, hypothesis)
        return list(best.items())[: params.n]

    @torch.inference_mode()
    def logprobs(self, prompt: str, continuation: str) -> list[float]:
        """Return log p of each token of the continuation, in nats, as if the model had generated it after the prompt.

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

    def _check_can_write(self, params: SampleSection) -> None:
        self.require_mask()
        for token in params.stop_tokens:
            if not 0 <= token < self.tokenizer.vocab_size:
                sentence = f"{token} is not a token id. Ids are from 0 to {self.tokenizer.vocab_size - 1}."
                raise ConfigError(sentence, where="stop_tokens")

    @functools.cached_property
    def suppressed(self) -> TokenFlags:
        """True for ids that are never generated, those that no text produces and an end never trained: (V,)."""
        suppressed = np.array([not piece for piece in self.tokenizer.token_bytes()])
        suppressed[self.tokenizer.eot_id] = not self.knows_end_of_text
        return suppressed

    def tokens_to_score(self, text: str) -> TokenArray:
        """Encode a text as one document, after end-of-text if the model knows it. DataError as `encode`."""
        ids = self.encode(text)
        return TokenArray(np.array([self.tokenizer.eot_id, *ids] if self.knows_end_of_text else ids, dtype=np.uint32))

    def windows(self, tokens: Tokens, stride: int | None = None) -> EvalWindows:
        """Return the windows in which ids are scored, as EvalWindows describes them.

        A model without a mask would attend to padding, so its batches have none.
        """
        cfg, end = self.gpt.cfg, self.tokenizer.eot_id if self.knows_end_of_text else None
        return EvalWindows(tokens, cfg.block_size, stride=stride, end=end, padding=not cfg.sees_ahead)

    def score(self, text: str, *, stride: int | None = None) -> Score:
        """Score a text. A model that knows end-of-text scores every token and the end; others all but the first token.

        stride: as in `score_tokens`.
        """
        return self.score_tokens(self.tokens_to_score(text), stride=stride)

    def score_tokens(
        self, tokens: Tokens, *, batch_size: int = SCORE_BATCH_SIZE, stride: int | None = None, every: int = 1
    ) -> Score:
        """Score ids document by document; of the batches, only every `every`-th.

        stride: how many tokens apart windows start; None: block_size. With a smaller stride each token has at least
        block_size - stride tokens of context in its document, and scoring takes block_size / stride times as long.
        """
        return Score.of(self.score_blocks(tokens, batch_size=batch_size, stride=stride, every=every).sum(0))

    def score_blocks(
        self, tokens: Tokens, *, batch_size: int, stride: int | None = None, first: int = 0, every: int = 1
    ) -> npt.NDArray[np.float64]:
        """Score each of BLOCKS equal parts of a text: nats, tokens, bytes, characters, (BLOCKS, 4).

        A window belongs to the part that it begins in. first, every: as `eval_batches` has them.
        """
        blocks = np.zeros((BLOCKS, 4))
        for rows, batch in eval_batches(self.windows(tokens, stride), batch_size, first=first, every=every):
            scores = score_windows(self.gpt, batch, self._bytes_and_chars, self.compute)
            np.add.at(blocks, rows[:, 0] * BLOCKS // tokens.n_tokens, scores)
        return blocks

    @functools.cached_property
    def _bytes_and_chars(self) -> Tensor:
        return bytes_and_chars_per_token(self.tokenizer)

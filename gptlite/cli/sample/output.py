"""The output of `gptlite sample`: text, explained text, JSON, or the page of a beam search."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gptlite.errors import DataError, located
from gptlite.formatting import Say, counted

if TYPE_CHECKING:
    from gptlite.config.training import SampleSection
    from gptlite.inference.generate import Sample
    from gptlite.inference.language_model import LanguageModel
    from gptlite.tokenizers.base import Tokenizer

N_TOP_LOGPROBS = 5


@dataclass(frozen=True)
class SampleWriter:
    """Samples from a model and passes the output to `put`. Each prompt comes with its name in messages."""

    model: LanguageModel
    title: str  # a line about the model
    section: SampleSection
    put: Say
    say: Say
    explain: bool
    as_json: bool
    skip: bool  # leave out characters that the model has no id for

    def write(self, named: Sequence[tuple[str, str]], repeats: int = 0) -> None:
        """Continue each prompt, by drawing or with beams. repeats: is added to the seed."""
        prompts = [self._usable(*prompt) for prompt in named]
        with located("--length-penalty", at="length_penalty"), located("--stop-token", at="stop_tokens"):
            if self.section.beams is None:
                self._draw(prompts, self.section.model_copy(update={"seed": self.section.seed + repeats}))
            elif self.explain:  # as an HTML page, of one prompt
                self._search_explained(*prompts)
            else:
                self._search(prompts)

    def write_logprobs(self, named: Sequence[tuple[str, str]], continuations: Sequence[str]) -> None:
        """Write log p of each continuation after each prompt."""
        prompts = [self._usable(*prompt) for prompt in named]
        known = [self._known("--logprob", text) for text in continuations]
        for prompt, continuation in itertools.product(prompts, known):
            logprobs = self.model.logprobs(prompt, continuation)
            total = sum(logprobs)
            if self.as_json:
                self._json(prompt, continuation=continuation, logprobs=logprobs, logprob=total)
            else:
                tokens = counted(len(logprobs), "token")
                self.put(f"{total:10.4f} nats, {tokens}: {quote(prompt)} + {quote(continuation)}\n")

    def _known(self, where: str, text: str) -> str:
        """Return the text, if asked for without unknown characters. DataError if there are such characters."""
        if not self.skip:
            try:
                self.model.encode(text)
            except DataError as error:
                advice = " --unknown skip leaves unknown characters out."
                raise DataError(f"{error.problems[0].sentence}{advice}", where) from error
            return text
        normalized = self.model.normalize(text)
        known = self.model.tokenizer.known(normalized)
        if left_out := len(normalized) - len(known):
            self.say(f"{where}: {counted(left_out, 'unknown character')} left out")
        return known

    def _usable(self, where: str, prompt: str) -> str:
        """Return the prompt as `_known` does. A message says if the model does not see all of it."""
        prompt = self._known(where, prompt)
        length, context = len(self.model.encode_prompt(prompt)), self.model.gpt.cfg.block_size
        if length > context:
            self.say(f"{where}: of {length:,} tokens, the model sees only the last {context} (its context)")
        return prompt

    def _draw(self, prompts: Sequence[str], params: SampleSection) -> None:
        n, seed = params.n, params.seed
        n_top = N_TOP_LOGPROBS if self.explain else 0
        for i, sample in enumerate(self.model.samples(prompts, params, n_top_logprobs=n_top)):
            prompt = prompts[i // n]
            if self.as_json:
                sample.whole()
                fields = {"token_ids": sample.tokens, "logprobs": sample.logprobs, "finish_reason": sample.reason}
                explained = {"top_logprobs": sample.top_logprobs} if self.explain else {}
                self._json(prompt, seed=seed, sample=i % n + 1, text=sample.text, **fields, **explained)
                continue
            self._heading(i, len(prompts) * n)
            try:
                if self.explain:
                    self._explain(prompt, sample)
                    continue
                self.put(prompt)
                for piece in sample:
                    self.put(piece)
            finally:  # also after Ctrl-C, so that messages start on a new line
                self.put("\n")

    def _search(self, prompts: Sequence[str]) -> None:
        n = self.section.n
        for i, prompt in enumerate(prompts):
            for rank, (text, found) in enumerate(self.model.search(prompt, self.section)):
                if self.as_json:
                    fields = {"token_ids": found.tokens, "logprob": found.logprob, "finish_reason": found.reason}
                    self._json(prompt, rank=rank + 1, score=found.score, text=text, **fields)
                    continue
                self._heading(i * n + rank, len(prompts) * n, f": score {found.score:.4f}")
                self.put(f"{prompt}{text}\n")

    def _search_explained(self, prompt: str) -> None:
        from gptlite.course.explained_beams import explain_search
        from gptlite.views.beams import beams_page

        search = explain_search(self.model, prompt, self.section)
        pieces, end = self.model.tokenizer.token_bytes(), self.model.tokenizer.eot_id
        self.put(beams_page(self.title, prompt, pieces, end, search, self.section))

    def _heading(self, i: int, total: int, details: str = "") -> None:
        if total > 1:
            self.put(f"--- {i + 1} of {total}{details}\n")

    def _json(self, prompt: str, **fields: Any) -> None:
        self.put(json.dumps({"prompt": prompt, **fields}, ensure_ascii=False) + "\n")

    def _explain(self, prompt: str, sample: Sample) -> None:
        """Write each token with its probability and those of the likeliest others, and then the text."""
        self.put(f"{prompt}\n(the model's own probabilities, before temperature and filters)\n")
        sample.whole()
        steps = zip(sample.tokens, sample.logprobs, sample.top_logprobs, strict=True)
        for number, (chosen, logprob, top) in enumerate(steps, start=1):
            self.put(f"token {number}\n")
            others = [pair for pair in top if pair[0] != chosen]
            for token, log_p in sorted([(chosen, logprob), *others][:N_TOP_LOGPROBS], key=lambda pair: -pair[1]):
                mark, name = ">" if token == chosen else " ", token_name(self.model.tokenizer, token)
                self.put(f"  {mark} {name:<16} {math.exp(log_p):7.2%}\n")
        self.put(prompt + sample.text)


def quote(text: str) -> str:
    """Return the text in quotes, on one line."""
    return json.dumps(text, ensure_ascii=False)


def token_name(tokenizer: Tokenizer, token: int) -> str:
    r"""Return the text of a token in quotes, with part of a character as \xe6; <id> for a token without text."""
    piece = tokenizer.token_bytes()[token]
    name = quote(piece.decode("utf-8", "surrogateescape"))
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if piece else f"<{token}>"

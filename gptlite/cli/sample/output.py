"""What `gptlite sample` shows of what a model writes: the text, how it came about, or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gptlite.errors import located

if TYPE_CHECKING:
    from gptlite.config.sampling import SampleSection
    from gptlite.inference.generate import Sample
    from gptlite.inference.language_model import LanguageModel
    from gptlite.tokenizers.base import Tokenizer

N_TOP_LOGPROBS = 5
BAR_WIDTH = 30


@dataclass(frozen=True)
class Show:
    """What is shown. stream: text as it comes, else each text when it is whole."""

    stream: bool
    explain: bool
    as_json: bool


@dataclass(frozen=True)
class SampleWriter:
    """Lets a model write, and puts what it wrote."""

    model: LanguageModel
    section: SampleSection
    put: Callable[[str], None]
    show: Show

    def write(self, prompts: Sequence[str], again: int = 0) -> None:
        """What the model adds to each prompt: drawn with the seed or one so many later, or searched for with beams."""
        with located("--beams", at="beams"), located("--stop-token", at="stop_tokens"):
            if self.section.beams is None:
                self._draw(prompts, self.section.model_copy(update={"seed": self.section.seed + again}))
            else:
                self._search(prompts)

    def judge(self, prompts: Sequence[str], continuations: Sequence[str]) -> None:
        """log p of each continuation after each prompt."""
        for prompt in prompts:
            for continuation in continuations:
                logprobs = self.model.logprobs(prompt, continuation)
                total = sum(logprobs)
                if self.show.as_json:
                    self._json(prompt, continuation=continuation, logprobs=logprobs, logprob=total)
                else:
                    self.put(f"{total:10.4f} nats, {len(logprobs)} tokens: {quoted(prompt)} + {quoted(continuation)}\n")

    def _draw(self, prompts: Sequence[str], params: SampleSection) -> None:
        n, seed = params.n, params.seed
        top_logprobs = N_TOP_LOGPROBS if self.show.explain else 0
        for i, sample in enumerate(self.model.samples(prompts, params, n_top_logprobs=top_logprobs)):
            prompt, number = prompts[i // n], i % n + 1
            if self.show.as_json:
                sample.whole()
                info = {"tokens": sample.tokens, "logprobs": sample.logprobs, "reason": sample.reason}
                explained = {"likeliest": sample.top_logprobs} if self.show.explain else {}
                self._json(prompt, seed=seed, sample=number, text=sample.text, **info, **explained)
                continue
            self._head(i, len(prompts) * n, f": prompt {i // n + 1}, sample {number}" if len(prompts) > 1 else "")
            with whole_lines(self.put):
                if self.show.explain:
                    self._explain(prompt, sample)
                else:
                    self._text(prompt, sample if self.show.stream else [sample.whole().text])

    def _search(self, prompts: Sequence[str]) -> None:
        n = self.section.n
        for i, prompt in enumerate(prompts):
            for rank, (text, found) in enumerate(self.model.search(prompt, self.section)):
                if self.show.as_json:
                    info = {"tokens": found.tokens, "logprob": found.logprob, "reason": found.reason}
                    self._json(prompt, rank=rank + 1, score=found.score, text=text, **info)
                    continue
                of_prompt = f"prompt {i + 1}, " if len(prompts) > 1 else ""
                self._head(i * n + rank, len(prompts) * n, f": {of_prompt}score {found.score:.4f}")
                self._text(prompt, [text, "\n"])

    def _head(self, i: int, total: int, words: str) -> None:
        if total > 1:
            self.put(f"--- {i + 1} of {total}{words}\n")

    def _text(self, prompt: str, pieces: Iterable[str]) -> None:
        self.put(prompt)
        for piece in pieces:
            self.put(piece)

    def _json(self, prompt: str, **info: Any) -> None:
        self.put(json.dumps({"prompt": prompt, **info}, ensure_ascii=False) + "\n")

    def _explain(self, prompt: str, sample: Sample) -> None:
        """Each token with what the model thought of it and of its rivals."""
        self.put(f"{prompt}\n(the model's own probabilities, before temperature and filters)\n")
        shown = 0
        for _ in sample:
            shown = self._steps(sample, shown)
        self._steps(sample, shown)
        self.put(prompt + sample.text)

    def _steps(self, sample: Sample, first: int) -> int:
        """The steps from `first` on; how many there are by now."""
        for step in range(first, len(sample.tokens)):
            chosen = sample.tokens[step], sample.logprobs[step]
            rivals = [rival for rival in sample.top_logprobs[step] if rival[0] != chosen[0]]
            of_step = sorted([chosen, *rivals][:N_TOP_LOGPROBS], key=lambda rival: -rival[1])
            self.put(f"token {step + 1}\n")
            for token, logprob in of_step:
                share, mark = math.exp(logprob), ">" if token == chosen[0] else " "
                bar = "#" * round(BAR_WIDTH * share)
                self.put(f"  {mark} {token_name(self.model.tokenizer, token):<16} {share:7.2%}  {bar}\n")
        return len(sample.tokens)


def quoted(text: str) -> str:
    """On one line, between quotes."""
    return json.dumps(text, ensure_ascii=False)


def token_name(tokenizer: Tokenizer, token: int) -> str:
    r"""The text of a token between quotes, part of a character as \xe6, an id without text by its number."""
    piece = tokenizer.token_bytes()[token]
    name = quoted(piece.decode("utf-8", "surrogateescape"))
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if piece else f"<{token}>"


@contextmanager
def whole_lines(put: Callable[[str], None]) -> Iterator[None]:
    """End the line that was begun, also where Ctrl-C cuts it short: what is said of that has a line of its own."""
    try:
        yield
    except KeyboardInterrupt:
        put("\n")
        raise
    put("\n")

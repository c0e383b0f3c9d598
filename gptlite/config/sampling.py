"""The `sample` section of the config."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gptlite.config.rules import Section, sample_rules
from gptlite.config.values import Count, Natural, NonNegative, Positive, StopTexts, StopTokens, key

DEFAULT_LENGTH_PENALTY = 1.0


class SampleSection(Section):
    """Defaults of gptlite sample."""

    rules = staticmethod(sample_rules)

    max_new_tokens: Count = key(200, "maximum number of tokens to generate")
    temperature: NonNegative = key(0.8, "sampling temperature; 0 is greedy, ignored by beam search")
    top_k: Count | None = key(None, "sample from this many most probable tokens; null means all")
    top_p: Annotated[float, Field(gt=0, le=1)] | None = key(
        None,
        "nucleus sampling: sample from the most probable tokens that together reach this probability; null means all",
    )
    min_p: Annotated[float, Field(gt=0, le=1)] | None = key(
        None, "drop tokens less probable than this fraction of the most probable one; null means none"
    )
    repetition_penalty: Positive | None = key(
        None, "above 1, tokens that already occur in the text become less probable; null means no penalty"
    )
    n: Count = key(1, "number of samples; with beam search the n best texts, at most beams")
    seed: Natural = key(0, "random seed of sampling")
    stop: StopTexts = key([], "texts that end a sample")
    stop_tokens: StopTokens = key([], "token ids that end a sample")
    beams: Annotated[int, Field(ge=1, le=64)] | None = key(
        None, "beam width of beam search; null samples token by token"
    )
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = key(
        None,
        "exponent for beam search, which ranks texts by log p / length ** length_penalty; null means "
        f"{DEFAULT_LENGTH_PENALTY:g}, the mean per token",
    )

    @property
    def beam_length_penalty(self) -> float:
        """Exponent of the length by which beam search divides log p."""
        return DEFAULT_LENGTH_PENALTY if self.length_penalty is None else self.length_penalty

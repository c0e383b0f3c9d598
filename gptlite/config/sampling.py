"""The keys of `gptlite sample`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from gptlite.config.rules import Rule, Section, draws_only, no_more_than_beams, penalty_belongs_to_beams
from gptlite.config.values import Count, Natural, NonNegative, Positive, StopTexts, StopTokens

DEFAULT_LENGTH_PENALTY = 1.0


class SampleSection(Section):
    """Defaults of `gptlite sample`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *map(draws_only, ("top_k", "top_p", "min_p", "repetition_penalty")),
        Rule(("n", "beams"), no_more_than_beams),
        Rule(("length_penalty", "beams"), penalty_belongs_to_beams),
    )

    max_new_tokens: Count = Field(default=200, description="tokens to write")
    temperature: NonNegative = Field(
        default=0.8, description="0 takes the likeliest token, higher varies more; beams draw nothing"
    )
    top_k: Count | None = Field(default=None, description="choose among this many likeliest tokens; null: among all")
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="choose among the likeliest tokens that reach this probability together; null: all"
    )
    min_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="choose among what is at least this probable, as a share of the likeliest; null: all"
    )
    repetition_penalty: Positive | None = Field(
        default=None, description="above 1: tokens that stand in the text already become less likely; null: they do not"
    )
    n: Count = Field(default=1, description="samples to write; with beams the n best, at most as many as beams")
    seed: Natural = Field(default=0, description="decides the random choices")
    stop: StopTexts = Field(default=[], description="texts at which a sample ends")
    stop_tokens: StopTokens = Field(default=[], description="token ids at which a sample ends")
    beams: Count | None = Field(
        default=None, description="search for the likeliest text with this many beams; null: draw token by token"
    )
    length_penalty: Annotated[float, Field(ge=-10, le=10)] | None = Field(
        default=None,
        description="only with beams: texts compare by log p / length ** this; null means "
        f"{DEFAULT_LENGTH_PENALTY:g}, the mean per token",
    )

    @property
    def beam_length_penalty(self) -> float:
        """With beams: the power of the length by which log p is divided."""
        return DEFAULT_LENGTH_PENALTY if self.length_penalty is None else self.length_penalty

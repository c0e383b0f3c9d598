"""Conditions between the keys of one section, and the section that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from gptlite.config.defaults import DEFAULT_MAX_STEPS


@dataclass(frozen=True)
class Rule:
    """A condition between keys of one section.

    `remedies` takes the values of `keys` in order and returns, if they clash, what each key would have to be for the
    others to stay as they are; an empty mapping means that they agree.
    """

    keys: tuple[str, ...]
    remedies: Callable[..., dict[str, str]]


class Section(BaseModel):
    """One section of the file; its rules hold between its own keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    rules: ClassVar[tuple[Rule, ...]] = ()
    alternatives: ClassVar[frozenset[str]] = frozenset()  # overriding one replaces the file's others

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        for rule in self.rules:
            for key, remedy in rule.remedies(*(getattr(self, key) for key in rule.keys)).items():
                raise ValueError(f"{key} = {getattr(self, key)}: {remedy}")
        return self


def size_belongs_to_bpe(vocab_size: int | None, kind: str) -> dict[str, str]:
    """Only a BPE tokenizer's size is chosen."""
    if kind == "bpe" or vocab_size is None:
        return {}
    return {
        "vocab_size": f"null, since kind {kind} has its own size; or set tokenizer.kind to bpe",
        "kind": "bpe, or set vocab_size to null",
    }


def heads_share_the_width(n_embd: int, n_head: int) -> dict[str, str]:
    """n_head divides n_embd."""
    if n_embd % n_head == 0:
        return {}
    near = max(1, round(n_embd / n_head)) * n_head
    return {
        "n_embd": f"a multiple of n_head ({n_head}), such as {near}",
        "n_head": f"a divisor of n_embd ({n_embd})",
    }


def micro_batches_fill_the_batch(micro_batch_size: int | str, batch_size: int) -> dict[str, str]:
    """micro_batch_size divides batch_size."""
    if isinstance(micro_batch_size, str) or batch_size % micro_batch_size == 0:
        return {}
    return {
        "micro_batch_size": f"auto or a divisor of batch_size ({batch_size})",
        "batch_size": f"a multiple of micro_batch_size ({micro_batch_size})",
    }


def one_length(max_steps: int | None, max_minutes: float | None) -> dict[str, str]:
    """Training is as long as max_steps or as max_minutes says, not both."""
    if max_steps is None or max_minutes is None:
        return {}
    return {
        "max_minutes": f"null, since max_steps ({max_steps}) says how long; or set train.max_steps=null too",
        "max_steps": f"null, since max_minutes ({max_minutes:g}) says how long; or set train.max_minutes=null too",
    }


def warmup_ends_in_time(warmup_steps: int, max_steps: int | None, max_minutes: float | None) -> dict[str, str]:
    """The warm-up is not longer than training."""
    max_steps = DEFAULT_MAX_STEPS if max_steps is None else max_steps
    if max_minutes is not None or warmup_steps <= max_steps:
        return {}
    return {
        "warmup_steps": f"at most max_steps ({max_steps})",
        "max_steps": f"at least warmup_steps ({warmup_steps}); set that lower too",
    }


def decay_belongs_to_constant(decay_fraction: float | None, schedule: str) -> dict[str, str]:
    """decay_fraction is for the schedule that holds before it falls."""
    if decay_fraction is None or schedule == "constant":
        return {}
    return {
        "decay_fraction": f"null, since only schedule constant has it (schedule is {schedule})",
        "schedule": "constant, or set decay_fraction to null",
    }


def momentum_belongs_to_muon(momentum: float | None, optimizer: str) -> dict[str, str]:
    """momentum is Muon's."""
    if momentum is None or optimizer != "adamw":
        return {}
    return {"momentum": "null, since optimizer adamw has beta1 and beta2", "optimizer": "muon, or set momentum to null"}


def draws_only(key: str) -> Rule:
    """A key that narrows what is drawn has no place in a search with beams."""

    def remedies(value: float | None, beams: int | None) -> dict[str, str]:
        if value is None or beams is None:
            return {}
        return {key: "null, since beams draw nothing; or set beams to null", "beams": f"null, or set {key} to null"}

    return Rule((key, "beams"), remedies)


def no_more_than_beams(n: int, beams: int | None) -> dict[str, str]:
    """A search ends with as many texts as it has beams."""
    if beams is None or n <= beams:
        return {}
    return {"n": f"at most as many as beams ({beams})", "beams": f"at least n ({n})"}


def penalty_belongs_to_beams(length_penalty: float | None, beams: int | None) -> dict[str, str]:
    """length_penalty is for beam search."""
    if length_penalty is None or beams is not None:
        return {}
    return {
        "length_penalty": "null, since only beams have it",
        "beams": "a number of beams, or set length_penalty to null",
    }


def pictures_belong_to_tensorboard(key: str) -> Rule:
    """Only TensorBoard shows pictures."""

    def remedies(wanted: bool, tensorboard: bool) -> dict[str, str]:
        if tensorboard or not wanted:
            return {}
        return {
            key: "false, since its pictures are for TensorBoard and log.tensorboard is false",
            "tensorboard": f"true, or set log.{key} to false",
        }

    return Rule((key, "tensorboard"), remedies)

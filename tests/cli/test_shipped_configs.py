"""Every shipped config and every value of a literal trains two updates as a user starts it, with every sink on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest

from gptlite.config.loading import builtin_folder
from gptlite.config.schema import SECTIONS

CONFIGS = sorted(path.stem for path in builtin_folder("configs").glob("*.yaml"))
EVERYTHING = ["log.tensorboard=true", "log.attention=true", "log.grad_norms=true"]
# What a value needs beside it.
WITH = {
    "model.variant=no_residual": ["model.init=gpt2"],
    "model.variant=no_mask": ["log.attention=false"],
    "train.scheduled_sampling_decay=exponential": ["train.scheduled_sampling=0.5"],
    "train.scheduled_sampling_decay=inverse_sigmoid": [
        "train.scheduled_sampling=0.5",
        "train.scheduled_sampling_start=0.01",
    ],
    "train.adamw_lr=null": ["train.optimizer=muon"],
    "train.max_steps=null": ["train.epochs=0.001"],
}


def literals(schema: dict[str, Any]) -> Iterator[str]:
    """The values that JSON Schema lists for a key, as --set takes them; of lists of literals one and all."""
    if "const" in schema:
        yield schema["const"]
    yield from schema.get("enum", ())
    yield from {"boolean": ("true", "false"), "null": ("null",)}.get(schema.get("type", ""), ())
    if schema.get("type") == "array" and "enum" in schema["items"]:
        items = schema["items"]["enum"]
        yield from (f"[{items[0]}]", f"[{', '.join(items)}]")
    for alternative in schema.get("anyOf", ()):
        yield from literals(alternative)


def settings(section: str) -> list[str]:
    """Every literal of a section's keys, as --set takes it."""
    keys = SECTIONS[section].model_json_schema()["properties"]
    return [f"{section}.{key}={value}" for key, schema in keys.items() for value in literals(schema)]


# One of each section at a time: their rules do not reach beyond a section.
PAIRS = list(zip_longest(settings("model"), settings("train")))


def sets(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_shipped_config_trains(gptlite, name):
    result = gptlite("train", "--config", name, "--data", "story.txt", "--set", "train.max_steps=2")
    assert result.code == 0, result.err
    assert "2 updates in" in result.out
    assert "switched off" not in result.err


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_value_reaches_every_sink(gptlite, pair):
    chosen = [setting for setting in pair if setting is not None]
    values = [*EVERYTHING, *(other for setting in chosen for other in WITH.get(setting, ())), *chosen]
    length = [] if "train.max_steps=null" in values else ["train.max_steps=2"]
    result = gptlite("train", "-c", "nano.yaml", *sets([*length, *values]))
    assert result.code == 0, result.err
    assert "switched off" not in result.err

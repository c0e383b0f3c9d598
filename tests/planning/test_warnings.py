"""Each warning comes past its limit and not at it, and goes when its advice is taken."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from gptlite.config.loading import builtin_folder, load_config
from gptlite.config.schema import RunConfig
from gptlite.model.sizes import count_parameters
from gptlite.planning.estimate import Disk, Forecast, Memory, TextUse
from gptlite.planning.warnings import (
    about_block,
    about_disk,
    about_epochs,
    about_memory,
    about_vocabulary,
    about_warmup,
)

GIB = 2**30


def foreseen(**others) -> Forecast:
    parts = {
        "parameters": count_parameters(RunConfig().model, 100),
        "memory": Memory(0, 0, 0, 0, 0, peak=4 * GIB),
        "disk": Disk(checkpoint=GIB, kept=3),
        "reading": TextUse(1000, 16_000),
    }
    return Forecast(**{**parts, **others})


def manifest(kind: str, vocab_size: int, tokens: int) -> SimpleNamespace:
    tokenizer = SimpleNamespace(kind=kind, vocab_size=vocab_size)
    return SimpleNamespace(tokenizer=tokenizer, train=SimpleNamespace(tokens=tokens))


def test_more_than_sixteen_epochs_are_pointed_out_unless_patience_ends_them():
    cfg = RunConfig().with_values({"train.max_steps": 320})
    assert list(about_epochs(cfg, foreseen())) == []
    (line,) = about_epochs(cfg, foreseen(reading=TextUse(1000, 32_000)))
    assert line.startswith("train.max_steps = 320: 32 epochs: ")
    assert "train 50% as long" in line
    patient = cfg.with_values({"train.patience": 3})
    assert list(about_epochs(patient, foreseen(reading=TextUse(1000, 32_000)))) == []
    assert list(about_epochs(cfg, foreseen(reading=TextUse(1000, None)))) == []


def test_a_vocabulary_needs_twenty_tokens_of_text_for_each_id():
    assert list(about_vocabulary(manifest("bpe", 4096, 81_920))) == []
    (line,) = about_vocabulary(manifest("bpe", 4096, 81_919))
    assert line.startswith("tokenizer.vocab_size = 4096: the text has 20 tokens for each id")
    assert line.endswith("set tokenizer.kind to bpe with vocab_size=2048")
    assert list(about_vocabulary(manifest("bpe", 2048, 81_919))) == []
    (line,) = about_vocabulary(manifest("gpt2", 50_257, 4_000))
    assert line.endswith("set tokenizer.kind to char")
    assert list(about_vocabulary(manifest("char", 4096, 20_000))) == []


def test_a_block_is_too_long_where_more_than_half_of_the_text_is_shorter_documents():
    lengths = np.array([10] * 50 + [500])  # 500 tokens in short documents, 500 in a long one
    assert list(about_block(256, lengths)) == []
    (line,) = about_block(256, np.append(lengths, 10))
    assert line.startswith("model.block_size = 256: 50% of the text is documents shorter than that")
    assert line.endswith("set it to 10 or less")
    assert list(about_block(10, np.append(lengths, 10))) == []
    assert list(about_block(256, np.array([20]))) == []


def test_a_warm_up_is_at_most_a_quarter_of_the_run():
    assert list(about_warmup(25, 100)) == []
    (line,) = about_warmup(26, 100)
    assert line == (
        "train.warmup_steps = 26: 26% of 100 updates are spent below the learning rate that they lead to; "
        "set it to 25 or less"
    )
    assert list(about_warmup(26, None)) == []


def test_memory_and_disk_are_to_hold_what_is_needed():
    cfg = RunConfig().with_values({"train.micro_batch_size": 16})
    assert list(about_memory(cfg, 4 * GIB, 4 * GIB)) == []
    (line,) = about_memory(cfg, 4 * GIB + 1, 4 * GIB)
    assert line.startswith("memory = 4.0 GiB: there are 4.0 GiB, ")
    assert list(about_disk(cfg, foreseen(), 4 * GIB)) == []  # three that stay and the one being written
    (line,) = about_disk(cfg, foreseen(), 4 * GIB - 1)
    assert line.startswith("save.keep = 2: 3 checkpoints and the one being written take 4.0 GiB, ")


@pytest.mark.parametrize("name", ["small", "char", "tiny", "shakespeare-char"])
def test_built_in_configs_warm_up_for_at_most_a_quarter(name):
    cfg = load_config(builtin_folder("configs") / f"{name}.yaml")
    assert list(about_warmup(cfg.train.warmup_steps, cfg.train.updates)) == []

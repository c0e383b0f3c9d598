"""Each warning comes past its limit and not at it, and goes when its advice is taken."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from gptlite.config.loading import builtin_folder, load_config
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.manifest import SplitRecord
from gptlite.model.sizes import count_parameters
from gptlite.planning.plan import (
    Disk,
    Estimate,
    Memory,
    TextUse,
    warn_about_block_size,
    warn_about_disk,
    warn_about_epochs,
    warn_about_memory,
    warn_about_vocabulary,
    warn_about_warmup,
)

GIB = 2**30


def estimate(**others) -> Estimate:
    parts = {
        "parameters": count_parameters(RunConfig().model, 100),
        "memory": Memory(0, 0, 0, 0, 0, peak=4 * GIB),
        "disk": Disk(checkpoint=GIB, kept=3),
        "text": TextUse(1010, 16_000, 16.0),
    }
    return Estimate(**{**parts, **others})


def manifest(kind: str, vocab_size: int, tokens: int) -> SimpleNamespace:
    tokenizer = SimpleNamespace(kind=kind, vocab_size=vocab_size)
    return SimpleNamespace(tokenizer=tokenizer, train=SimpleNamespace(tokens=tokens))


def test_more_than_sixteen_epochs_are_pointed_out_unless_patience_ends_them():
    cfg = RunConfig().with_values({"train.max_steps": 320})
    assert list(warn_about_epochs(cfg, estimate())) == []
    (line,) = warn_about_epochs(cfg, estimate(text=TextUse(1010, 32_000, 32.0)))
    assert line.startswith("train.max_steps=320 reads the text 32 times. Train 50% as long")
    patient = cfg.with_values({"train.patience": 3})
    assert list(warn_about_epochs(patient, estimate(text=TextUse(1010, 32_000, 32.0)))) == []
    assert list(warn_about_epochs(cfg, estimate(text=TextUse(1010, None, None)))) == []


def test_a_vocabulary_needs_twenty_tokens_of_text_for_each_id():
    assert list(warn_about_vocabulary(manifest("bpe", 4096, 81_920))) == []
    (line,) = warn_about_vocabulary(manifest("bpe", 4096, 81_919))
    assert line.startswith("tokenizer.vocab_size is 4096, and the text has 20 tokens per id. ")
    assert "Use tokenizer.kind=bpe and tokenizer.vocab_size=2048:" in line
    assert list(warn_about_vocabulary(manifest("bpe", 2048, 81_919))) == []
    (line,) = warn_about_vocabulary(manifest("gpt2", 50_257, 4_000))
    assert "Use tokenizer.kind=char and tokenizer.vocab_size=null:" in line
    assert list(warn_about_vocabulary(manifest("char", 4096, 20_000))) == []


def test_a_block_is_too_long_where_more_than_half_of_the_text_is_shorter_documents():
    record = SplitRecord(tokens=1010, bytes=1000, documents=52, half_length=10)
    assert list(warn_about_block_size(10, record)) == []
    (line,) = warn_about_block_size(11, record)
    assert line.startswith(
        "model.block_size is 11, but more than half of the text is in documents of at most 10 tokens. "
    )
    assert "Use model.block_size=10 or less:" in line
    assert list(warn_about_block_size(11, dataclasses.replace(record, documents=1))) == []


def test_a_warm_up_is_at_most_a_quarter_of_the_run():
    assert list(warn_about_warmup(25, 100)) == []
    (line,) = warn_about_warmup(26, 100)
    assert line.startswith("The warm-up takes 26 steps, which is 26% of 100 updates. ")
    assert "Use train.warmup_steps=25 or less," in line
    assert list(warn_about_warmup(26, None)) == []


def test_memory_and_disk_are_to_hold_what_is_needed():
    cfg = RunConfig().with_values({"train.micro_batch_size": 16})
    assert list(warn_about_memory(cfg, 4 * GIB, 4 * GIB)) == []
    (line,) = warn_about_memory(cfg, 4 * GIB + 1, 4 * GIB)
    assert line.startswith("this run may need 4.0 GiB of memory, and there are 4.0 GiB. ")
    assert list(warn_about_disk(cfg, estimate(), 4 * GIB)) == []  # three that stay and the one being written
    (line,) = warn_about_disk(cfg, estimate(), 4 * GIB - 1)
    assert line.startswith("save.keep is 2: 3 checkpoints and the one being written take 4.0 GiB, ")


@pytest.mark.parametrize("name", ["small", "char", "tiny", "shakespeare-char"])
def test_built_in_configs_warm_up_for_at_most_a_quarter(name):
    cfg = load_config(builtin_folder("configs") / f"{name}.yaml")
    assert list(warn_about_warmup(cfg.train.warmup_steps, cfg.train.updates)) == []

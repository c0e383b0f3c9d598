"""Each warning comes past its limit and not at it, and goes when its advice is taken."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gptlite.config.loading import builtin_folder, load_config
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.manifest import SplitRecord
from gptlite.planning.plan import Disk, warn_about_disk, warn_about_length, warn_about_memory, warn_about_text

GIB = 2**30


def warnings_of_text(kind: str, vocab_size: int, tokens: int) -> list[str]:
    """The warnings about a single document."""
    tokenizer = SimpleNamespace(kind=kind, vocab_size=vocab_size)
    record = SplitRecord(tokens=tokens, bytes=tokens, documents=1, half_length=tokens)
    return list(warn_about_text(RunConfig(), SimpleNamespace(tokenizer=tokenizer, train=record)))


def test_more_than_sixteen_epochs_are_pointed_out_unless_patience_ends_them():
    cfg = RunConfig().with_values({"train.max_steps": 320})
    assert list(warn_about_length(cfg, 16.0)) == []
    (line,) = warn_about_length(cfg, 32.0)
    assert line.startswith("train.max_steps=320 reads the text 32 times. Train 50% as long")
    assert list(warn_about_length(cfg.with_values({"train.patience": 3}), 32.0)) == []
    assert list(warn_about_length(cfg, None)) == []


def test_a_vocabulary_needs_twenty_tokens_of_text_for_each_id():
    assert warnings_of_text("bpe", 4096, 81_920) == []
    (line,) = warnings_of_text("bpe", 4096, 81_919)
    assert line.startswith("tokenizer.vocab_size is 4096, and the text has 20 tokens per id. ")
    assert "Use tokenizer.kind=bpe and tokenizer.vocab_size=2048:" in line
    assert warnings_of_text("bpe", 2048, 81_919) == []
    (line,) = warnings_of_text("gpt2", 50_257, 4_000)
    assert "Use tokenizer.kind=char and tokenizer.vocab_size=null:" in line
    assert warnings_of_text("char", 4096, 20_000) == []


def test_a_block_is_too_long_where_more_than_half_of_the_text_is_shorter_documents():
    def warnings(block_size: int, documents: int) -> list[str]:
        record = SplitRecord(tokens=1010, bytes=1000, documents=documents, half_length=10)
        manifest = SimpleNamespace(tokenizer=SimpleNamespace(kind="char"), train=record)
        return list(warn_about_text(RunConfig().with_values({"model.block_size": block_size}), manifest))

    assert warnings(10, 52) == []
    (line,) = warnings(11, 52)
    assert line.startswith(
        "model.block_size is 11, but more than half of the text is in documents of at most 10 tokens. "
    )
    assert "Use model.block_size=10 or less:" in line
    assert warnings(11, 1) == []


def test_a_warm_up_is_at_most_a_quarter_of_the_run():
    cfg = RunConfig().with_values({"train.warmup_steps": 25, "train.max_steps": 100})
    assert list(warn_about_length(cfg, None)) == []
    longer = cfg.with_values({"train.warmup_steps": 26})
    (line,) = warn_about_length(longer, None)
    assert line.startswith("The warm-up takes 26 steps, which is 26% of 100 updates. ")
    assert "Use train.warmup_steps=25 or less," in line
    assert list(warn_about_length(longer.with_values({"train.max_steps": None, "train.max_minutes": 1.0}), None)) == []


def test_memory_and_disk_are_to_hold_what_is_needed():
    cfg = RunConfig().with_values({"train.micro_batch_size": 16})
    assert list(warn_about_memory(cfg, 4 * GIB, 4 * GIB)) == []
    (line,) = warn_about_memory(cfg, 4 * GIB + 1, 4 * GIB)
    assert line.startswith("this run may need 4.0 GiB of memory, and there are 4.0 GiB. ")
    disk = Disk(checkpoint=GIB, kept=3, total=3 * GIB)  # three that stay and the one being written
    assert list(warn_about_disk(cfg, disk, 4 * GIB)) == []
    (line,) = warn_about_disk(cfg, disk, 4 * GIB - 1)
    assert line.startswith("save.keep is 2: 3 checkpoints and the one being written take 4.0 GiB, ")


@pytest.mark.parametrize("name", ["small", "char", "tiny", "shakespeare-char"])
def test_built_in_configs_warm_up_for_at_most_a_quarter(name):
    assert list(warn_about_length(load_config(builtin_folder("configs") / f"{name}.yaml"), None)) == []

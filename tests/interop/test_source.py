"""`train.from`: weights of a GPT-2 in Hugging Face's format and of runs, and what is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from training_runs import final, start, train_new
from transformers import GPT2Config, GPT2LMHeadModel

from gptlite.config.schema import RunConfig
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import UserError
from gptlite.interop import gpt2
from gptlite.interop.source import open_source
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2
from gptlite.runs.checkpoint import valid_checkpoints
from gptlite.runs.find import with_tokenizer
from gptlite.runs.run import Run
from gptlite.tokenizers.base import load
from gptlite.training.launch import Request, open_session

PUBLISHED = {"gpt2": (12, 12, 768), "medium": (24, 16, 1024), "large": (36, 20, 1280), "xl": (48, 25, 1600)}
ONE_UPDATE = {"train.max_steps": 1, "save.every": 1, "eval.every": 1, "log.tensorboard": False, "run.threads": 1}


def save_gpt2(folder: Path, text: str, *, special_first: bool = False, **config: Any) -> GPT2LMHeadModel:
    """Save a GPT-2 of random weights with a tokenizer, both made without gptlite."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=299,
        special_tokens=special if special_first else [],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    bpe.train_from_iterator([text], trainer)
    bpe.add_special_tokens(special)
    folder.mkdir()
    bpe.save(str(folder / "tokenizer.json"))
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 24, **config}
    torch.manual_seed(1)
    ids = {"vocab_size": bpe.get_vocab_size(), "bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(**ids, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **sizes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(folder)
    return model


@pytest.fixture
def asked(tmp_path: Path, text_file: Path) -> RunConfig:
    """A run that begins with the model in the folder `source`."""
    source = str(tmp_path / "source")
    places = {"data.source": str(text_file), "data.dir": str(tmp_path / "data"), "train.from": source}
    return RunConfig().with_values({**places, "tokenizer.from": source, "train.batch_size": 4, **ONE_UPDATE})


def begun(cfg: RunConfig, root: Path) -> tuple[Run, dict[str, torch.Tensor]]:
    """A run and its tensors before the first update."""
    run = start(cfg, root, "begun")
    return run, valid_checkpoints(run.checkpoints)[0].read_tensors("model.safetensors")


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("published_names", [True, False])
def test_a_gpt2_arrives_bit_for_bit(tmp_path, text_file, asked, tied, published_names):
    folder = tmp_path / "source"
    model = save_gpt2(folder, text_file.read_text(), tie_word_embeddings=tied)
    if published_names:  # without a prefix, and with the mask, as the first GPT-2 was published
        stored = load_file(folder / "model.safetensors")
        renamed = {name.removeprefix("transformer."): tensor for name, tensor in stored.items()}
        mask = torch.ones(1, 1, 24, 24).tril()
        save_file(
            {**renamed, "h.0.attn.bias": mask, "h.0.attn.masked_bias": torch.tensor(-1e4)}, folder / "model.safetensors"
        )
    run, tensors = begun(asked, tmp_path)
    expected = {name: each for name, each in model.state_dict().items() if name != "lm_head.weight" or not tied}
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = "the cat sat on the moon, naïve 東京 🙂\n\n  x2"
    assert load(final(run).path).encode(text).tolist() == theirs.encode(text).ids


def test_a_tokenizer_with_other_numbers_has_the_rows_of_its_tokens(tmp_path, text_file, asked):
    model = save_gpt2(tmp_path / "source", text_file.read_text(), special_first=True)
    run, tensors = begun(asked, tmp_path)
    vocab = json.loads((tmp_path / "source/tokenizer.json").read_text())["model"]["vocab"]
    ours = json.loads((final(run).path / "tokenizer.json").read_text())["model"]["vocab"]
    assert vocab["<|endoftext|>"] == 0
    assert ours["<|endoftext|>"] == len(vocab) - 1
    rows, theirs = tensors["transformer.wte.weight"], model.transformer.wte.weight
    assert all(torch.equal(rows[ours[token]], theirs[vocab[token]]) for token in ours)


def test_the_published_shapes_fit(tmp_path):
    for n_layer, n_head, n_embd in PUBLISHED.values():
        config = GPT2Config(n_layer=n_layer, n_head=n_head, n_embd=n_embd)
        config.save_pretrained(tmp_path)
        with torch.device("meta"):
            theirs = GPT2LMHeadModel(config)
            ours = GPT(gpt2.read_section(tmp_path / "config.json"), config.vocab_size)
        from_gpt2(theirs.state_dict(), ours)
        assert ours.n_parameters() == sum(each.numel() for each in theirs.parameters())


def test_three_updates_are_those_of_transformers(tmp_path, text_file, asked):
    theirs = save_gpt2(tmp_path / "source", text_file.read_text()).train()
    cfg = asked.with_values(
        {
            **{"train.max_steps": 3, "train.optimizer": "adamw", "train.lr": 1e-3, "train.schedule": "constant"},
            **{"train.decay_fraction": 0.0, "train.warmup_steps": 0, "train.grad_clip": None},
            **{"train.vocab_sample": None, "run.precision": "fp32", "train.weight_decay": 0.0},
        }
    )
    run = start(cfg, tmp_path, "three")
    with open_session(Request(cfg, "again", root=tmp_path)) as session:
        batches = [session.trainer.batches.rows(step, 0, 4) for step in range(3)]
    adamw = torch.optim.AdamW(theirs.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    for x, y in batches:
        logits = theirs(x).logits
        F.cross_entropy(logits.flatten(0, 1), y.flatten()).backward()
        adamw.step()
        adamw.zero_grad()
    tensors = final(run).read_tensors("model.safetensors")
    for name, expected in theirs.state_dict().items():
        if name != "lm_head.weight":
            torch.testing.assert_close(tensors[name], expected, rtol=1e-4, atol=2e-5)


def test_a_context_is_cropped_or_extended(tmp_path, text_file, asked):
    model = save_gpt2(tmp_path / "source", text_file.read_text())
    theirs = model.transformer.wpe.weight
    for block_size in (16, 40):
        run = train_new(asked.with_values({"model.block_size": block_size}), root=tmp_path).run
        table = valid_checkpoints(run.checkpoints)[0].read_tensors("model.safetensors")["transformer.wpe.weight"]
        kept = min(24, block_size)
        assert table.shape == (block_size, 32)
        assert torch.equal(table[:kept], theirs[:kept])
        assert (table[kept:] != 0).all()


def test_another_tokenizer_keeps_the_rows_of_shared_tokens(tmp_path, tiny):
    base = start(tiny.with_values({"train.max_steps": 2}), tmp_path, "base")
    checkpoint = final(base)
    words = {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 270, "data.dir": str(tmp_path / "data")}
    cfg = RunConfig().with_values(
        {"data.source": tiny.data.source, **ONE_UPDATE, **words, "train.from": str(checkpoint.path)}
    )
    run, tensors = begun(cfg, tmp_path)
    old, new = load(checkpoint.path).token_bytes(), load(final(run).path).token_bytes()
    before, after = (each["transformer.wte.weight"] for each in (checkpoint.read_tensors("model.safetensors"), tensors))
    assert torch.equal(after[new.index(b"t")], before[old.index(b"t")])
    assert torch.equal(after[-1], before[-1])  # end-of-text
    joined = next(piece for piece in new if len(piece) == 2)
    parts = [before[old.index(bytes([byte]))] for byte in joined]
    torch.testing.assert_close(after[new.index(joined)], torch.stack(parts).mean(0))
    assert not torch.equal(after[new.index(b"\x80")], torch.zeros(16))  # fresh


def test_a_run_without_a_checkpoint_begins_again_with_the_weights(tmp_path, text_file, asked):
    model = save_gpt2(tmp_path / "source", text_file.read_text())
    with open_session(Request(asked, "run", root=tmp_path)):
        pass  # stopped before anything was saved
    with open_session(Request(run=Run(tmp_path / "run"))) as session:
        weight = session.trainer.model.blocks[1].attn.qkv.weight
        assert torch.equal(weight, model.transformer.h[1].attn.c_attn.weight.t())
        session.train()
    shutil.rmtree(tmp_path / "source")
    with open_session(Request(run=Run(tmp_path / "run"))) as session:  # no longer needed
        assert session.restored is not None


def test_what_is_frozen_stays_and_the_rest_learns(tmp_path, tiny):
    frozen = {"train.freeze": ["embeddings", "block 0"], "model.n_layer": 2, "log.grad_norms": True}
    run = start(tiny.with_values({**frozen, "train.max_steps": 3, "save.every": 3}), tmp_path, "frozen")
    first, last = (each.read_tensors("model.safetensors") for each in valid_checkpoints(run.checkpoints))
    trained = {name for name in first if not torch.equal(first[name], last[name])}
    fixed = ("transformer.wte.", "transformer.wpe.", "transformer.h.0.")
    assert trained
    assert not any(name.startswith(fixed) for name in trained)
    assert {name.split(".")[2] for name in trained if ".h." in name} == {"1"}
    with pytest.raises(UserError, match="the blocks of this model are 0 to 1"):
        start(tiny.with_values({**frozen, "train.freeze": ["blocks 1-2"]}), tmp_path, "beyond")


def edit(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def shard_but_one(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = {name: f"model-0000{1 + ('h.1.' in name)}-of-00002.safetensors" for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")


def as_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def wrong_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "transformer.h.0.mlp.c_fc.weight": torch.zeros(32, 96)}, folder / "model.safetensors")


def flat_table(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "transformer.wte.weight": torch.zeros(300)}, folder / "model.safetensors")


def bad_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": []}')


def doubled_merge(folder: Path) -> None:
    path = folder / "tokenizer.json"
    fields = json.loads(path.read_text())
    fields["model"]["merges"] += fields["model"]["merges"][-1:]
    path.write_text(json.dumps(fields))


def unknown_split(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(
        path.read_text()
        .replace('"add_prefix_space":false', '"add_prefix_space":true', 1)
        .replace('"add_prefix_space": false', '"add_prefix_space": true', 1)
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shard_but_one, "no model-00002-of-00002.safetensors in it. Copy the whole folder"),
        (as_pickle, "pytorch_model.bin is a pickle, which can run any program. Convert it"),
        (wrong_shape, r"mlp.c_fc.weight has shape \(96, 32\), not \(128, 32\)"),
        (lambda folder: edit(folder, model_type="gpt_neo"), "model_type is 'gpt_neo', and only gpt2"),
        (lambda folder: edit(folder, scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx is True"),
        (lambda folder: edit(folder, n_inner=96), "n_inner is 96, and only 128"),
        (lambda folder: edit(folder, rotary=True, alibi=2), "does not know alibi, rotary, which may change"),
        (lambda folder: edit(folder, n_head=0), "n_head is 0, which is no whole number above 0"),
        (lambda folder: edit(folder, n_layer=3), r"config.json declares \[3, 24, 32\]"),
        (lambda folder: edit(folder, n_head=5), "this describes no model"),
        (lambda folder: edit(folder, scale_attn_weights="true"), "scale_attention: Input should be a valid boolean"),
        (lambda folder: edit(folder, n_layer=1), r"config.json declares \[1, 24, 32\]"),
        (lambda folder: edit(folder, n_positions=30), r"config.json declares \[2, 30, 32\]"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "there is no tokenizer.json in it"),
        (flat_table, r"wte.weight has shape \(300,\), and its tokenizer and config need \(300 or more, 32\)"),
        (bad_index, "this does not list the files of a model"),
        (doubled_merge, "merges bytes as that of GPT-2 does"),
        (unknown_split, "this is no byte-level BPE that splits text"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "this is no byte-level BPE"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), "no valid safetensors file"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, text_file, asked, damage, message):
    save_gpt2(tmp_path / "source", text_file.read_text())
    damage(tmp_path / "source")
    with pytest.raises(UserError, match=message):
        start(asked, tmp_path, "refused")
    assert not (tmp_path / "refused").exists()


def test_another_shape_is_refused_with_both_values(tmp_path, text_file, asked):
    save_gpt2(tmp_path / "source", text_file.read_text())
    with pytest.raises(UserError, match=r"model\.n_embd is 64, but in .*source it is 32\. Leave it out"):
        start(asked.with_values({"model.n_embd": 64}), tmp_path, "refused")


def test_the_published_gpt2_is_found_in_the_cache_checked_and_never_fetched_offline(tmp_path, text_file, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("GPTLITE_OFFLINE", "1")
    with pytest.raises(UserError, match=r"config\.json of openai-community/gpt2 was not found: .*\. Go online"):
        open_source("gpt2", RunConfig())
    snapshot = tmp_path / "hub/models--openai-community--gpt2/snapshots" / gpt2._REVISION
    snapshot.parent.mkdir(parents=True)
    save_gpt2(snapshot, text_file.read_text())
    with pytest.raises(UserError, match="not the file that was published"):
        open_source("gpt2", RunConfig())
    found = {name: hashlib.sha256((snapshot / name).read_bytes()).hexdigest() for name in gpt2._SHA256}
    monkeypatch.setattr(gpt2, "_SHA256", found)
    assert open_source("gpt2", RunConfig()).path == snapshot


def test_a_foreign_tokenizer_prepares_a_text(tmp_path, text_file, asked):
    save_gpt2(tmp_path / "source", text_file.read_text())
    cfg = with_tokenizer(asked)
    assert (cfg.tokenizer.kind, cfg.tokenizer.vocab_size, cfg.tokenizer.pattern) == ("bpe", 300, "gpt2")
    assert prepare(cfg.data, cfg.tokenizer).manifest.tokenizer.vocab_size == 300

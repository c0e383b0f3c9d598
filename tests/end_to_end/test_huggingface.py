"""A checkpoint folder, copied anywhere, is a Hugging Face model and tokenizer."""

from __future__ import annotations

import shutil

import pytest
import torch

import gptlite
from gptlite.cli import app
from gptlite.config.training import SampleSection

CONFIG = """\
data: {source: story.txt}
model: {n_layer: 2, n_head: 2, n_embd: 16, block_size: 32}
train: {max_steps: 20, batch_size: 8, warmup_steps: 2, lr: 0.02}
eval: {every: 20}
log: {tensorboard: false}
run: {threads: 1}
"""
TEXT = "Der Zug fährt ab. 東京は雨です。 naïve café, x2 = 10;\n\treturn [i for i in range(100)]\n"


@pytest.mark.parametrize(
    "values",
    [
        ["tokenizer.kind=bpe", "tokenizer.vocab_size=300"],
        ["tokenizer.kind=char", "model.bias=true", "model.tie_weights=false", "model.position=sinusoidal"],
    ],
    ids=["bpe", "char"],
)
def test_a_copied_checkpoint_gives_our_logits_and_our_ids(tmp_path, monkeypatch, values):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.chdir(tmp_path)
    (tmp_path / "story.txt").write_text(TEXT * 60, encoding="utf-8")
    (tmp_path / "nano.yaml").write_text(CONFIG)
    assert app.run(["train", "-c", "nano.yaml", *(word for value in values for word in ("--set", value))]) == 0
    shutil.move("runs/nano/checkpoints/step-00000020", "elsewhere")
    shutil.rmtree("runs")
    shutil.rmtree("data")

    ours = gptlite.load("elsewhere")
    theirs = AutoModelForCausalLM.from_pretrained("elsewhere").eval()
    tokenizer = AutoTokenizer.from_pretrained("elsewhere")
    ids = ours.encode(TEXT)
    assert tokenizer(TEXT)["input_ids"] == ids
    assert tokenizer.decode(ids) == TEXT
    idx = torch.tensor([ids[:32]])
    with torch.no_grad():
        torch.testing.assert_close(theirs(idx).logits, ours.gpt(idx), rtol=0, atol=1e-5)
        prompt = torch.tensor([ours.encode("Der Zug")])
        options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 16, "do_sample": False}
        greedy = theirs.generate(prompt, **options)[0, prompt.size(1) :]
        beams = theirs.generate(prompt, **options, num_beams=3, early_stopping="never")[0, prompt.size(1) :]
    assert (
        next(ours.samples("Der Zug", SampleSection(max_new_tokens=16, temperature=0))).whole().tokens == greedy.tolist()
    )
    assert list(ours.search("Der Zug", SampleSection(max_new_tokens=16, beams=3))[0][1].tokens) == beams.tolist()

"""`gptlite export`: each target from the command line, what it says, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import gguf
import pytest
import torch

import gptlite as package

NATS = re.compile(r"read back: log-probabilities of 16 tokens differ by at most (\S+) nats")


def test_a_folder_opens_in_transformers_and_has_a_card_and_no_optimizer(gptlite, trained):
    from transformers import AutoModelForCausalLM

    result = gptlite("export", "nano")
    assert (result.code, result.out) == (0, "nano-hf\n")
    assert float(NATS.search(result.err)[1]) < 1e-4
    ours, theirs = package.load("nano"), AutoModelForCausalLM.from_pretrained("nano-hf").eval()
    idx = torch.tensor([ours.encode("the cat sat on")])
    with torch.no_grad():
        torch.testing.assert_close(theirs(idx).logits, ours.gpt(idx), rtol=0, atol=1e-4)
    assert package.load("nano-hf").encode("the cat") == ours.encode("the cat")
    assert not {"optimizer.safetensors", "state.json"} & {path.name for path in Path("nano-hf").iterdir()}
    card = Path("nano-hf/README.md").read_text("utf-8")
    best = min(
        line["bits_per_byte"]
        for line in map(json.loads, Path("runs/nano/metrics.jsonl").read_text().splitlines())
        if line["split"] == "val"
    )
    assert f"{best:.4f} bits per byte" in card
    assert "`story.txt`" in card
    assert "PPMd after the training text" in card


def test_a_gguf_file_comes_with_a_modelfile(gptlite, trained):
    result = gptlite("export", "nano", "--to", "gguf", "small.gguf")
    assert (result.code, result.out) == (0, "small.gguf\nsmall.Modelfile\n")
    assert float(NATS.search(result.err)[1]) < 1e-3
    fields = gguf.GGUFReader("small.gguf").fields
    assert fields["general.architecture"].contents() == "gpt2"
    assert fields["gpt2.context_length"].contents() == 16
    assert Path("small.Modelfile").read_text().startswith("FROM ./small.gguf\n")


def test_a_page_says_what_rounding_costs(gptlite, trained):
    result = gptlite("export", "nano", "--to", "page", "--type", "q8_0")
    assert (result.code, result.out) == (0, "nano.html\n")
    page, exact = re.search(
        r"rounded to q8_0: (\S+) bits per byte of .* and (\S+) without rounding", result.err
    ).groups()
    assert abs(float(page) - float(exact)) < 0.01
    scored = gptlite("eval", "nano").out
    assert exact in scored
    assert "<title>nano</title>" in Path("nano.html").read_text("utf-8")


def test_a_model_whose_text_is_gone_is_exported_and_says_so(gptlite, trained):
    shutil.copytree(next(trained.glob("checkpoints/step-*6")), "alone")
    result = gptlite("export", "alone", "--to", "page")
    assert (result.code, result.out) == (0, "alone.html\n")
    assert "exported without its text" in result.err
    assert "rounded to" not in result.err


def test_what_cannot_be_exported_is_refused_and_nothing_is_left(gptlite, trained):
    Path("there.gguf").write_text("mine")
    assert gptlite("export", "nano", "there.gguf", "--to", "gguf").refuses("there.gguf: this exists.")
    assert gptlite("export", "nano", "nowhere/x.html", "--to", "page").refuses("there is no folder nowhere")
    assert gptlite("export", "nano", "--to", "pdf").refuses("invalid value for '--to': 'pdf' is not one of 'folder', ")
    assert gptlite("export", "nano", "x.gguf").refuses("x.gguf: --to folder writes a folder. Change the name or --to.")
    assert gptlite("export", "nano", "x.txt", "--to", "page").refuses("--to page writes a file that ends in .html.")
    assert gptlite("export", "nano", "--type", "f16").refuses("--type f16: --to folder accepts no type.")
    assert gptlite("export", "nano", "--to", "page", "--type", "f32").refuses("--to page accepts f16 or q8_0.")
    assert gptlite("export", "other").refuses("other")
    assert gptlite("train", "-c", "nano.yaml", "--name", "post", "--set", "model.norm=post").code == 0
    for target in ("folder", "gguf", "page"):
        assert gptlite("export", "post", "--to", target).refuses("Train one with model.norm=pre.")
    assert Path("there.gguf").read_text() == "mine"
    assert {path.name for path in Path().iterdir()} == {"data", "nano.yaml", "runs", "story.txt", "there.gguf"}


def test_a_full_disk_leaves_nothing_behind(gptlite, trained, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensors_to_file", full)
    result = gptlite("export", "nano", "--to", "gguf")
    assert result.code == 4
    assert result.errors == [
        "nano.gguf: cannot write: No space left on device. The disk or your quota is full; free some space, then try "
        "again."
    ]
    assert {path.name for path in Path().iterdir()} == {"data", "nano.yaml", "runs", "story.txt"}


@pytest.mark.parametrize("kind", ["gpt2", "gptlite"])
def test_a_tokenizer_that_llama_cpp_lacks_is_refused_with_the_key(gptlite, trained, kind):
    train = ("train", "-c", "nano.yaml", "--name", "bpe", "--set", "tokenizer.kind=bpe")
    assert gptlite(*train, "--set", "tokenizer.vocab_size=300", "--set", f"tokenizer.pattern={kind}").code == 0
    result = gptlite("export", "bpe", "--to", "gguf")
    assert result.code == 0 if kind == "gpt2" else result.refuses("Train with tokenizer.pattern=gpt2")

"""GGUF files, read by `gguf` and run by llama.cpp."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from random_gpt import language_model, random_gpt

from gptlite.errors import ConfigError
from gptlite.inference.language_model import LanguageModel
from gptlite.interop.gguf_file import read_gguf, vocabulary, write_gguf
from gptlite.interop.readback import largest_difference
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.bpe import PATTERNS, train_bpe
from gptlite.tokenizers.char import CharTokenizer

TEXT = "Der Zug fährt ab. 東京は雨です。 naïve café, x2 = 10;\n\treturn [i for i in range(100)]"
TEXT += "  🙂\r\n\r\n'll don't\u00a0\ufeff "
CHARACTERS = "".join(sorted(set(TEXT)))
TOKENIZERS = {
    "char": lambda: CharTokenizer(CHARACTERS),
    "bpe": lambda: train_bpe([TEXT * 20], 300, PATTERNS["gpt2"]),
}
# Nats, of any id that may follow.
BOUNDS = {"relu": 1e-4, "gelu": 1e-2}
MODEL = {"n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 64, "dtype": torch.float32, "spread": 0.15}


def written(folder: Path, tokenizer: Tokenizer, kind: str = "f32", **values: Any) -> tuple[Path, LanguageModel]:
    model = language_model(random_gpt(tokenizer.vocab_size, **(MODEL | values)), tokenizer)
    path = folder / "model.gguf"
    write_gguf(path, model, kind, "a name", "a line")
    return path, model


@pytest.mark.parametrize(
    ("activation", "bias", "tied", "kind"), list(product(("relu", "gelu"), (True, False), (True, False), TOKENIZERS))
)
def test_every_combination_is_read_back_bit_for_bit(tmp_path, activation, bias, tied, kind):
    path, model = written(tmp_path, TOKENIZERS[kind](), activation=activation, bias=bias, tie_weights=tied)
    read = {each.name: np.array(each.data) for each in gguf.GGUFReader(path).tensors}
    own, block = dict(model.gpt.named_parameters()), model.gpt.blocks[1]
    k = 65536.0 if activation == "relu" else 1.0
    expected = {
        "token_embd.weight": own["token_embedding.weight"],
        "position_embd.weight": own["position_embedding.weight"],
        "output_norm.weight": model.gpt.ln_f.weight,
        "blk.1.attn_norm.weight": block.ln_1.weight,
        "blk.1.attn_qkv.weight": block.attn.qkv.weight,
        "blk.1.attn_output.weight": block.attn.proj.weight,
        "blk.1.ffn_norm.weight": block.ln_2.weight,
        "blk.1.ffn_up.weight": k * block.mlp.up.weight,
        "blk.1.ffn_down.weight": block.mlp.down.weight / k,
    }
    if bias:
        expected |= {"blk.1.ffn_up.bias": k * block.mlp.up.bias, "blk.1.attn_qkv.bias": block.attn.qkv.bias}
    else:
        expected |= {"blk.1.ffn_up.bias": torch.zeros(128), "blk.1.attn_qkv.bias": torch.zeros(96)}
    for name, tensor in expected.items():
        np.testing.assert_array_equal(read[name], tensor.numpy(), name)
    assert ("output.weight" in read) is not tied
    assert len(read) == 2 * 12 + 4 + (not tied)


@pytest.mark.parametrize(
    "values", [{"scale_attention": False}, {"position": "sinusoidal"}, {"position": "none"}], ids=str
)
def test_what_gpt2_does_differently_is_folded_into_the_weights(tmp_path, values):
    path, model = written(tmp_path, CharTokenizer(CHARACTERS), **values)
    idx = torch.arange(len(CHARACTERS))[None, :32]
    assert largest_difference(model.gpt, read_gguf(path, model.gpt.cfg, model.tokenizer.vocab_size), idx) < 1e-4


def test_vocabulary_has_every_id_once_and_says_what_it_is():
    tokens, types, merges = vocabulary(CharTokenizer("aé東"))
    assert tokens == ["a", "Ã©", "æĿ±", "<|endoftext|>"]
    assert types == [1, 1, 1, 3]
    assert merges == ["Ã ©", "æ Ŀ", "æĿ ±"]
    bpe = train_bpe([TEXT], 300, PATTERNS["gpt2"])
    bpe.vocab_size += 2
    tokens, types, _ = vocabulary(bpe)
    n = len(bpe.ranks)
    assert tokens[n:] == [f"[PAD{n}]", f"[PAD{n + 1}]", "<|endoftext|>"]
    assert types[n:] == [5, 5, 3]
    assert len(set(tokens)) == len(tokens) == bpe.vocab_size


def test_a_pattern_that_llama_cpp_lacks_is_refused_with_the_key(tmp_path):
    with pytest.raises(ConfigError, match=r"tokenizer\.pattern=gpt2"):
        written(tmp_path, train_bpe([TEXT], 300))
    with pytest.raises(ConfigError, match="multiple of 32, not 24"):
        written(tmp_path, CharTokenizer("ab"), "q8_0", n_embd=24)
    assert not list(tmp_path.iterdir())


def llama(path: Path, **job: Any) -> dict[str, Any]:
    """What llama.cpp answers to a job of llama_worker.py."""
    command = [sys.executable, str(Path(__file__).with_name("llama_worker.py"))]
    job = {"path": str(path), "n_ctx": 64, "texts": [], "prompts": [], "n_predict": 20, "n_ids": 1} | job
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, encoding="utf-8", timeout=100)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT "))
    return answer


needs_llama = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="no xllamacpp: llama.cpp is not run")


@needs_llama
@pytest.mark.slow
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_llama_cpp_gives_the_same_ids(tmp_path, kind):
    tokenizer = TOKENIZERS[kind]()
    path, _ = written(tmp_path, tokenizer)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 40, 20_000)
    texts = ["".join(rng.choice(list(CHARACTERS), n)) for n in lengths]
    if kind == "bpe":  # any character at all
        letters = [chr(c) for c in rng.integers(1, 0x3000, 2000)]
        texts[::2] = ["".join(rng.choice(letters, n)) for n in lengths[::2]]
    texts.append(TEXT * 50)
    ids = llama(path, texts=texts)["ids"]
    assert ids == [i for text in texts for i in tokenizer.encode(text).tolist()]


@needs_llama
@pytest.mark.parametrize(("activation", "kind"), [("relu", "char"), ("gelu", "bpe")])
def test_llama_cpp_gives_the_same_probabilities_and_writes_the_same(tmp_path, activation, kind):
    tokenizer = TOKENIZERS[kind]()
    path, model = written(tmp_path, tokenizer, activation=activation, bias=activation == "gelu", spread=0.3)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, tokenizer.eot_id, n).tolist() for n in rng.integers(1, 40, 50)]
    answer = llama(path, prompts=prompts, n_ids=tokenizer.vocab_size)
    assert sum(map(bool, answer["logprobs"])) > 40
    bound = BOUNDS[activation]
    for prompt, found, written_on in zip(prompts, answer["logprobs"], answer["greedy"], strict=True):
        with torch.inference_mode():
            logits = model.gpt(torch.tensor([prompt]))[0, -1]
        ours = torch.log_softmax(logits.double(), -1)
        assert len(found) in (0, tokenizer.vocab_size)
        assert max((abs(ours[int(i)] - value) for i, value in found.items()), default=0.0) < bound
        assert_same_unless_near(model, prompt, written_on, bound)


def assert_same_unless_near(model, prompt, theirs, bound):
    """Both continue alike, up to where the two likeliest ids are nearer than the bound."""
    text = list(prompt)
    for token in theirs:
        with torch.inference_mode():
            logits = model.gpt(torch.tensor([text]))[0, -1]
        first, second = logits.topk(2).values
        if token != logits.argmax():
            assert first - second < bound
            return
        text.append(token)

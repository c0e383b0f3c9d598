"""Checkpoints that cannot be loaded are refused with the file and the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy_gpt
import pytest
import torch
from random_gpt import language_model

from gptlite.config.schema import ModelSection
from gptlite.errors import ConfigError, Damaged, RunError
from gptlite.inference.load import build_model, read_model_info, with_context
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import to_gpt2
from gptlite.tokenizers.char import CharTokenizer

CFG = ModelSection(n_layer=1, n_head=1, n_embd=4, block_size=8)
INFO = {"model": CFG.model_dump(), "start_id": 0, "normalize": "none"}


def checkpoint(config: dict, gpt: GPT | None = None) -> SimpleNamespace:
    tensors = {} if gpt is None else to_gpt2(gpt)
    return SimpleNamespace(path=Path("step"), read_json=lambda name: config, read_tensors=lambda name: tensors)


def test_what_a_model_writes_into_a_config_json_is_read_back():
    model = language_model(GPT(CFG, 8), CharTokenizer("abcdefg"), 3)
    assert model.to_json() == {**INFO, "start_id": 3}
    assert read_model_info(checkpoint({"gptlite": model.to_json()})) == (CFG, 3, "none")


def test_tensors_that_do_not_fit_the_config_are_damage():
    with pytest.raises(Damaged, match=r"^step/model\.safetensors: tensor transformer\.wte\.weight has shape \(9, 4\)"):
        build_model(checkpoint({}, GPT(CFG, 9)), CFG, 5, "fused")
    renamed = checkpoint({}, GPT(CFG, 5))
    renamed.read_tensors("model.safetensors")["other"] = renamed.read_tensors("model.safetensors").pop(
        "transformer.wte.weight"
    )
    with pytest.raises(Damaged, match=r"tensor transformer\.wte\.weight is missing"):
        build_model(renamed, CFG, 5, "fused")


@pytest.mark.parametrize("position", ["sinusoidal", "none"])
def test_another_context_continues_the_positions_and_changes_no_earlier_logits(position):
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 8, "position": position, "init": "torch"}
    trained = GPT(ModelSection(**shape), 5, rng=torch.Generator().manual_seed(0))
    model = build_model(checkpoint({}, trained), with_context(trained.cfg, 20), 5, "fused")
    assert model.cfg == trained.cfg.model_copy(update={"block_size": 20})
    idx = torch.randint(5, (1, 20), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(idx)[:, :8], trained(idx[:, :8]), rtol=0, atol=1e-5)
    weights = {name: p.detach().double().numpy() for name, p in trained.named_parameters()}
    expected = numpy_gpt.logits(weights, trained.cfg.model_dump(), idx[0].numpy())
    np.testing.assert_allclose(model(idx)[0].detach().numpy(), expected, rtol=0, atol=1e-4)
    with pytest.raises(AssertionError, match="20 positions in a model with block_size 8"):
        trained(idx)


def test_learned_positions_have_no_other_context():
    with pytest.raises(ConfigError, match=r"^context: the model has learned the positions of its 8 tokens"):
        with_context(CFG, 4)


@pytest.mark.parametrize(
    "changed",
    [{"model": None}, {"model": {"n_layer": "two"}}, {"start_id": "0"}, {"normalize": "nfd"}, None, []],
    ids=str,
)
def test_a_malformed_model_info_is_one_line(changed):
    info = {**INFO, **changed} if isinstance(changed, dict) else changed
    with pytest.raises(RunError, match=r"^step/config\.json: the fields model, start_id and normalize are missing or "):
        read_model_info(checkpoint({"gptlite": info}))

"""Checkpoints that cannot be loaded are refused with the file and the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpy_gpt
import pytest
import torch

from gptlite.config.schema import ModelSection
from gptlite.errors import ConfigError, Damaged, RunError
from gptlite.inference.language_model import ModelInfo
from gptlite.inference.load import build_model, read_model_info, with_context
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import to_gpt2

INFO = ModelInfo(ModelSection(n_layer=1, n_head=1, n_embd=4, block_size=8), start_id=0, normalize="none")


def checkpoint(config: dict, gpt: GPT | None = None) -> SimpleNamespace:
    tensors = {} if gpt is None else to_gpt2(gpt)
    return SimpleNamespace(path=Path("step"), read_json=lambda name: config, read_tensors=lambda name: tensors)


def test_the_model_info_is_read_back_from_its_json():
    assert read_model_info(checkpoint({"gptlite": INFO.to_json()})) == INFO


def test_tensors_that_do_not_fit_the_config_are_damage():
    with pytest.raises(Damaged, match=r"^step/model\.safetensors: tensor transformer\.wte\.weight has shape \(9, 4\)"):
        build_model(checkpoint({}, GPT(INFO.model, 9)), INFO, 5, "fused", 8)
    renamed = checkpoint({}, GPT(INFO.model, 5))
    renamed.read_tensors("model.safetensors")["other"] = renamed.read_tensors("model.safetensors").pop(
        "transformer.wte.weight"
    )
    with pytest.raises(Damaged, match=r"tensor transformer\.wte\.weight is missing"):
        build_model(renamed, INFO, 5, "fused", 8)


@pytest.mark.parametrize(
    "declared",
    [
        {"n_layer": 10**9},
        {"n_layer": 2},
        {"n_embd": 10**9},
        {"block_size": 10**9},
        {"block_size": 10**9, "position": "sinusoidal"},
    ],
    ids=str,
)
def test_a_model_larger_than_its_tensors_is_refused_before_it_is_built(monkeypatch, declared):
    monkeypatch.setattr("gptlite.inference.load.GPT", None)  # 10**9 layers would take all memory
    tensors = checkpoint({}, GPT(INFO.model, 5))
    info = ModelInfo(INFO.model.model_copy(update=declared), start_id=0, normalize="none")
    with pytest.raises(Damaged, match=r"^step/model\.safetensors: config\.json declares .* have \[1, 8, 4\]\. The ch"):
        build_model(tensors, info, 5, "fused", 8)


@pytest.mark.parametrize("position", ["sinusoidal", "none"])
def test_another_context_continues_the_positions_and_changes_no_earlier_logits(position):
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 8, "position": position, "init": "torch"}
    trained = GPT(ModelSection(**shape), 5, rng=torch.Generator().manual_seed(0))
    info = ModelInfo(trained.cfg, start_id=0, normalize="none")
    assert with_context(info, 20).model == info.model.model_copy(update={"block_size": 20})
    model = build_model(checkpoint({}, trained), info, 5, "fused", 20)
    idx = torch.randint(5, (1, 20), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(idx)[:, :8], trained(idx[:, :8]), rtol=0, atol=1e-5)
    weights = {name: p.detach().double().numpy() for name, p in trained.named_parameters()}
    expected = numpy_gpt.logits(weights, trained.cfg.model_dump(), idx[0].numpy())
    np.testing.assert_allclose(model(idx)[0].detach().numpy(), expected, rtol=0, atol=1e-4)
    with pytest.raises(AssertionError, match="20 positions in a model with block_size 8"):
        trained(idx)


@pytest.mark.parametrize("context", [-1, 0, 2**20 + 1])
def test_an_impossible_context_is_refused(context):
    info = ModelInfo(INFO.model.model_copy(update={"position": "none"}), start_id=0, normalize="none")
    with pytest.raises(ConfigError, match=f"^context: the context is {context}, but"):
        with_context(info, context)


def test_learned_positions_have_no_other_context():
    with pytest.raises(ConfigError, match=r"^context: the model has learned the positions of its 8 tokens"):
        with_context(INFO, 4)


@pytest.mark.parametrize("start_id", [-1, 5])
def test_a_start_id_that_the_tokenizer_lacks_is_refused(start_id):
    info = ModelInfo(INFO.model, start_id=start_id, normalize="none")
    with pytest.raises(Damaged, match=f"start_id is {start_id}, and the tokenizer has 5 ids"):
        build_model(checkpoint({}, GPT(INFO.model, 5)), info, 5, "fused", 8)


MODEL = INFO.to_json()["model"]


@pytest.mark.parametrize(
    "changed",
    [
        *[{"model": model} for model in (None, [1], {**MODEL, "n_layer": "two"}, {**MODEL, "n_heads": 2})],
        *[{"start_id": "0"}, {"start_id": None}, {"normalize": "nfd"}, {"normalize": ["nfc"]}],
        *[None, [], "x", 1],
    ],
    ids=str,
)
def test_a_malformed_model_info_is_one_line(changed):
    info = {**INFO.to_json(), **changed} if isinstance(changed, dict) else changed
    with pytest.raises(RunError, match=r"^step/config\.json: the fields model, start_id and normalize are missing or "):
        read_model_info(checkpoint({"gptlite": info}))


def test_weights_that_are_not_finite_are_refused():
    gpt = GPT(INFO.model, 5)
    torch.nn.init.constant_(gpt.ln_f.weight, torch.nan)
    with pytest.raises(
        RunError, match=r"^step: ln_f\.weight has values that are not finite\. Use another checkpoint\.$"
    ):
        build_model(checkpoint({}, gpt), INFO, 5, "fused", 8)

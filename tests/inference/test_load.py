"""Checkpoints that cannot be loaded are refused with the file and the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gptlite.config.schema import ModelSection
from gptlite.errors import RunError
from gptlite.inference.language_model import ModelInfo
from gptlite.inference.load import build_model, read_model_info
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import to_gpt2
from gptlite.runs.checkpoint import Damaged

INFO = ModelInfo(ModelSection(n_layer=1, n_head=1, n_embd=4, block_size=8), start_id=0, normalize="none")


def checkpoint(config: dict, gpt: GPT | None = None) -> SimpleNamespace:
    tensors = {} if gpt is None else to_gpt2(gpt)
    return SimpleNamespace(path=Path("step"), read_json=lambda name: config, read_model=lambda: tensors)


def test_the_model_info_is_read_back_from_its_json():
    assert read_model_info(checkpoint({"gptlite": INFO.to_json()})) == INFO


@pytest.mark.parametrize("config", [{}, {"gptlite": {**INFO.to_json(), "format_version": 2}}], ids=["none", "newer"])
def test_an_unknown_format_version_is_refused(config):
    with pytest.raises(
        RunError, match=r"^step/config\.json: format_version is (None|2), and this gptlite reads 1\. Use"
    ):
        read_model_info(checkpoint(config))


def test_tensors_that_do_not_fit_the_config_are_damage():
    with pytest.raises(Damaged, match=r"^step/model\.safetensors: tensor transformer\.wte\.weight has shape \(9, 4\)"):
        build_model(checkpoint({}, GPT(INFO.model, 9)), INFO, 5, "fused")
    with pytest.raises(Damaged, match="is missing"):
        build_model(checkpoint({}), INFO, 5, "fused")


def test_weights_that_are_not_finite_are_refused():
    gpt = GPT(INFO.model, 5)
    torch.nn.init.constant_(gpt.ln_f.weight, torch.nan)
    with pytest.raises(
        RunError, match=r"^step: ln_f\.weight has values that are not finite\. Use another checkpoint\.$"
    ):
        build_model(checkpoint({}, gpt), INFO, 5, "fused")

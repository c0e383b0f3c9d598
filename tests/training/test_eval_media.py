"""log.attention: entropies and pictures at each evaluation, and nothing else changes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy_gpt
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from training_runs import numbers, train_new

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.tokens import TokenArray
from gptlite.inference.inspect import attention_steps
from gptlite.inference.language_model import LanguageModel
from gptlite.model.gpt import GPT
from gptlite.runs.run import Run
from gptlite.tokenizers.char import CharTokenizer
from gptlite.training.diagnostics import GAP, attention_image, fixed_text, measure_attention

CPU = Compute(torch.device("cpu"), "fp32", "fused", 1)
VALIDATION = TokenArray(np.arange(100) % 5, "val")


def model(cfg: RunConfig) -> LanguageModel:
    gpt = GPT(cfg.model, 6, rng=torch.Generator().manual_seed(0))
    return LanguageModel(gpt, CharTokenizer("abcde"), 0, "none", CPU)


def config(**values) -> RunConfig:
    small = {"model.n_layer": 2, "model.n_head": 2, "model.n_embd": 8, "model.block_size": 48, "log.attention": True}
    return RunConfig().with_values({**small, **{name.replace("__", "."): value for name, value in values.items()}})


def trainer(judge: LanguageModel, cfg: RunConfig, dist: Dist | None = None) -> Any:
    """What is looked at of a trainer."""
    parts = {"language_model": judge, "model": judge.gpt, "validation": VALIDATION}
    return SimpleNamespace(cfg=cfg, dist=dist or Dist(), **parts)


def test_the_fixed_text_is_the_prompt_or_the_beginning_of_the_validation_text():
    def ids(**values) -> list[int]:
        cfg = config(**values)
        return fixed_text(model(cfg), cfg, VALIDATION)

    assert ids(eval__prompt="cab") == [2, 0, 1]
    assert ids(eval__prompt="c") == ids() == VALIDATION.ids[:32].tolist()
    assert len(ids(eval__prompt="abc" * 20)) == 48  # block_size
    assert len(ids(eval__prompt="abc" * 100, model__block_size=512)) == 128
    cfg = config()
    assert fixed_text(model(cfg), cfg, TokenArray(np.arange(3), "val")) == [0, 1, 2]


def test_every_layer_has_a_picture_of_the_weights_that_the_equation_gives():
    cfg = config(eval__prompt="cabb", log__tensorboard=True)
    judge = model(cfg)
    _, shown = measure_attention(trainer(judge, cfg))
    layers = attention_steps(judge.gpt, judge.encode("cabb"))
    assert list(shown) == ["attention/layer_1", "attention/layer_2"]
    for picture, layer in zip(shown.values(), layers, strict=True):
        assert np.array_equal(picture, attention_image(layer.weights))


@pytest.mark.parametrize("values", [{}, {"model__norm": "post"}, {"model__scale_attention": False}], ids=str)
def test_every_block_has_the_entropy_of_the_weights_that_numpy_finds(values):
    cfg = config(eval__prompt="cabbed", model__init="torch", **values)
    judge = model(cfg)
    with torch.no_grad():
        for block in judge.gpt.blocks:
            block.attn.qkv.weight.mul_(4)  # else every head attends almost evenly
    weights = {name: p.detach().numpy() for name, p in judge.gpt.named_parameters()}
    layers = []

    def keep_weights(x: np.ndarray, p: float) -> np.ndarray:
        """In place of dropout, which is given the attention weights (n_head, T, T) of each block, and (T, C)."""
        layers.extend([x] if x.ndim == 3 else [])
        return x

    numpy_gpt.logits(weights, cfg.model.model_dump(), np.array(judge.encode("cabbed")), keep_weights)
    by_hand = [
        sum(-p * math.log(p) for head in layer for t, row in enumerate(head) for p in row[: t + 1]) / (2 * 6)
        for layer in layers
    ]
    uniform = sum(math.log(t) for t in (1, 2, 3, 4, 5, 6)) / 6
    found, _ = measure_attention(trainer(judge, cfg))
    assert found == pytest.approx(
        {
            "attention_entropy/block_1": by_hand[0],
            "attention_entropy/block_2": by_hand[1],
            "attention_entropy/uniform": uniform,
        },
        rel=1e-5,
    )
    assert all(entropy < 0.9 * uniform for entropy in by_hand)


def test_only_the_main_process_looks_and_only_if_it_is_told_to(monkeypatch):
    cfg = config()
    judge = model(cfg)
    assert measure_attention(trainer(judge, config(log__tensorboard=False)))[1] == {}
    monkeypatch.setattr(GPT, "hidden", lambda *_: pytest.fail("the model ran"))
    assert measure_attention(trainer(judge, cfg, Dist(rank=1, world_size=2))) == ({}, {})
    assert measure_attention(trainer(judge, config(log__attention=False))) == ({}, {})


def test_pictures_and_entropies_appear_at_each_evaluation_and_change_no_number_of_the_run(tiny, tmp_path):
    def run(name: str, **values) -> Run:
        cfg = tiny.with_values({"log.tensorboard": True, **values})
        return train_new(cfg, root=tmp_path / "runs", name=name).run

    def images(run: Run) -> dict[str, list[int]]:
        events = EventAccumulator(str(run.path / "tb"), size_guidance={"images": 0})
        events.Reload()
        return {tag: [image.step for image in events.Images(tag)] for tag in events.Tags()["images"]}

    off, on = run("off", **{"eval.prompt": "the cat"}), run("on", **{"eval.prompt": "the cat", "log.attention": True})
    assert images(off) == {}
    assert images(on) == {"attention/layer_1": [4, 8, 12]}
    own = {"attention_entropy/block_1", "attention_entropy/uniform"}
    added = {line["step"]: own & line.keys() for line in numbers(on) if line["split"] == "val"}
    assert added == {0: own, 4: own, 8: own, 12: own}
    others = [{key: value for key, value in line.items() if key not in own} for line in numbers(on)]
    assert others == [{"step": 0, "split": "val", "tokens": 0}, *numbers(off)]
    assert (on.path / "samples.jsonl").read_text() == (off.path / "samples.jsonl").read_text()


def test_each_weight_is_a_square_of_one_shade_and_heads_stand_side_by_side_from_the_left() -> None:
    weights = np.zeros((3, 4, 4))
    weights[:, range(4), range(4)] = 1.0
    weights[2] = [[1, 0, 0, 0], [0.25, 0.75, 0, 0], [0, 0.25, 0.75, 0], [0.25, 0.25, 0.25, 0.25]]
    pixels = attention_image(weights)
    side, cell = 192, 48
    assert pixels.shape == (2 * side + GAP, 2 * side + GAP, 3)
    white, dark = [255] * 3, [0] * 3
    for top, left in ((0, 0), (0, side + GAP)):
        for t in range(4):
            for s in range(4):
                square = pixels[top + cell * t :, left + cell * s :][:cell, :cell].reshape(-1, 3)
                assert (square == (dark if s == t else white)).all()
    # The root of 1/4 is the middle.
    assert pixels[side + GAP + cell, 0].tolist() == [128] * 3
    # Nothing stands where a fourth head would.
    assert len(np.unique(pixels[side + GAP :, side + GAP :].reshape(-1, 3), axis=0)) == 1

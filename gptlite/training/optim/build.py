"""Which optimizer updates which parameter, and the state of the optimizers by parameter name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gptlite.compute.device import Compute, computes_in_bf16
from gptlite.config.training import TrainSection
from gptlite.errors import ConfigError
from gptlite.model.gpt import GPT
from gptlite.training.optim.muon import Muon, Uncompiled

Optimizers = Sequence[torch.optim.Optimizer]


class AdamW(Uncompiled, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101), as torch computes it."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one update from the gradients."""
        assert closure is None, "the loss is computed outside"
        update: Any = inspect.unwrap(torch.optim.AdamW.step)
        update(self)


def build_optimizers(model: GPT, cfg: TrainSection, compute: Compute) -> Optimizers:
    """AdamW for all parameters that are not frozen, or Muon for the hidden matrices and AdamW for the rest.

    Weight decay acts on matrices that multiply; norms, biases and embeddings are not decayed.
    """
    assert cfg.optimizer != "auto", "resolve comes first"
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    hidden = {name: p for name, p in trained.items() if name.startswith("blocks.") and p.ndim == 2}
    by_muon = hidden if cfg.optimizer == "muon" else {}
    decayed: list[torch.nn.Parameter] = []
    plain: list[torch.nn.Parameter] = []
    for name, p in trained.items():
        if name not in by_muon:
            multiplies = name in hidden or name == "head.weight"
            (decayed if multiplies else plain).append(p)
    groups = [{"params": decayed, "weight_decay": cfg.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    if not trained:
        raise ConfigError("train.freeze names every part of this model, so nothing is left to train. Name fewer.")
    adamw = AdamW(
        [g for g in groups if g["params"]] or [{"params": plain}],
        lr=cfg.highest_lr,
        betas=cfg.betas,
        eps=1e-8,
        fused=True,
    )
    if cfg.optimizer != "muon":
        return [adamw]
    for group in adamw.param_groups:
        group["lr_fraction"] = cfg.adamw_fraction
    if not by_muon:  # all of them are frozen
        return [adamw]
    # bf16 halves the work where the hardware multiplies it, and is many times slower where it is emulated.
    fast = compute.precision == "bf16" and computes_in_bf16(compute.device)
    muon = Muon(
        # Q, K and V are stored as one matrix.
        [
            {"params": [p for name, p in by_muon.items() if name.endswith("attn.qkv.weight")], "parts": 3},
            {"params": [p for name, p in by_muon.items() if not name.endswith("attn.qkv.weight")]},
        ],
        lr=cfg.highest_lr,
        momentum=cfg.muon_momentum,
        weight_decay=cfg.weight_decay,
        dtype=torch.bfloat16 if fast else None,
    )
    return [muon, adamw]


class Together:
    """Several optimizers as one, of which the scaler of fp16 makes all of an update or nothing."""

    def __init__(self, optimizers: Optimizers) -> None:
        self._optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        """Make one update from the gradients."""
        for optimizer in self._optimizers:
            optimizer.step()


def set_lr(optimizers: Optimizers, lr: float) -> None:
    """Set the learning rate of the next update; a group with an `lr_fraction` takes that part of it."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_fraction", 1.0)


def named_state(model: GPT, optimizers: Optimizers) -> dict[str, Tensor]:
    """Optimizer state by parameter: `blocks.0.attn.qkv.weight/momentum` -> tensor. The order is that of the model."""
    states = {p: state for optimizer in optimizers for p, state in optimizer.state.items()}
    return {
        f"{name}/{key}": value
        for name, p in model.named_parameters()
        for key, value in sorted(states.get(p, {}).items())
    }


def load_named_state(model: GPT, optimizers: Optimizers, saved: Mapping[str, Tensor]) -> None:
    """Restore what `named_state` returned, and nothing else."""
    for optimizer in optimizers:
        optimizer.state.clear()
    parameters = dict(model.named_parameters())
    owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    for full_name, value in saved.items():
        name, key = full_name.rsplit("/", 1)
        p = parameters[name]
        owner[p].state[p][key] = value.to(p.device, copy=True)

"""Which optimizer moves which parameter, and their state by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from gptlite.compute.device import Compute, computes_in_bf16
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection
from gptlite.errors import ConfigError
from gptlite.model.gpt import GPT
from gptlite.training.optim.muon import Muon, orthogonalise_flops
from gptlite.training.optim.uncompiled import AdamW

Optimizers = Sequence[torch.optim.Optimizer]

# Beside Muon, AdamW takes this share of its learning rate: with all of it training ended 0.8 % worse, with a quarter
# 0.4 % (configs/README.md).
SHARE_BESIDE_MUON = 0.5


def hidden_matrices(model: GPT) -> dict[str, torch.nn.Parameter]:
    """The weight matrices inside the blocks: what Muon may move."""
    return {name: p for name, p in model.named_parameters() if name.startswith("blocks.") and p.ndim == 2}


def parts(name: str) -> int:
    """How many maps of their own a matrix stacks: Q, K and V are one."""
    return 3 if name.endswith("attn.qkv.weight") else 1


def muon_flops(model: GPT) -> int:
    """Arithmetic that Muon adds to each update."""
    total = 0
    for name, p in hidden_matrices(model).items():
        n = parts(name)
        total += n * orthogonalise_flops(p.size(0) // n, p.size(1))
    return total


def update_flops(model: GPT, tokens: int) -> int:
    """Forward and backward of one update of `tokens` tokens: 6 per weight and token, and the attention products.

    Kaplan et al. 2020 (arXiv 2001.08361), section 2.1; the head counts, the look-up tables do not.
    """
    cfg = model.cfg
    weights = sum(p.numel() for p in hidden_matrices(model).values()) + cfg.n_embd * model.vocab_size
    attention = 2 * cfg.n_layer * cfg.block_size * cfg.n_embd
    return 6 * tokens * (weights + attention)


def choose_optimizer(model: GPT, cfg: RunConfig) -> tuple[str, str]:
    """What `train.optimizer: auto` becomes, and why: never Muon where its arithmetic would exceed the model's."""
    if cfg.train.optimizer != "auto":
        return cfg.train.optimizer, f"optimizer {cfg.train.optimizer}: as asked"
    ours, models = muon_flops(model), update_flops(model, cfg.train.batch_size * cfg.model.block_size)
    share = f"{ours / 1e9:.3g} GFLOP an update on top of the model's {models / 1e9:.3g}"
    if ours <= models:
        return "muon", f"optimizer muon: {share}"
    if cfg.train.momentum is not None:
        raise ConfigError(
            f"train.momentum = {cfg.train.momentum}: null, since auto takes adamw here (Muon costs {share}); "
            "or set train.optimizer to muon"
        )
    return "adamw", f"optimizer adamw: Muon costs {share}"


def build_optimizers(model: GPT, cfg: TrainSection, compute: Compute) -> Optimizers:
    """AdamW for everything, or Muon for the hidden matrices and AdamW for the rest.

    Weight decay acts on matrices that multiply; norms, biases and embeddings are not decayed.
    """
    assert cfg.optimizer != "auto", "choose_optimizer comes first"
    hidden = hidden_matrices(model)
    by_muon = hidden if cfg.optimizer == "muon" else {}
    decayed: list[torch.nn.Parameter] = []
    plain: list[torch.nn.Parameter] = []
    for name, p in model.named_parameters():
        if name not in by_muon:
            multiplies = name in hidden or name == "head.weight"
            (decayed if multiplies else plain).append(p)
    groups = [{"params": decayed, "weight_decay": cfg.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    adamw = AdamW(
        [g for g in groups if g["params"]], lr=cfg.highest_lr, betas=(cfg.beta1, cfg.beta2), eps=1e-8, fused=True
    )
    if not by_muon:
        return [adamw]
    for group in adamw.param_groups:
        group["lr_share"] = SHARE_BESIDE_MUON
    # bf16 halves the work where the hardware multiplies it, and is many times slower where it does not.
    fast = compute.precision == "bf16" and computes_in_bf16(compute.device)
    muon = Muon(
        [{"params": [p], "parts": parts(name)} for name, p in by_muon.items()],
        lr=cfg.highest_lr,
        momentum=cfg.muon_momentum,
        weight_decay=cfg.weight_decay,
        dtype=torch.bfloat16 if fast else None,
    )
    return [muon, adamw]


def set_lr(optimizers: Optimizers, lr: float) -> None:
    """The learning rate of the next update; a group with an `lr_share` takes that share of it."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_share", 1.0)


def named_state(model: GPT, optimizers: Optimizers) -> dict[str, Tensor]:
    """Optimizer state by parameter: `blocks.0.attn.qkv.weight/momentum` -> tensor."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {
        f"{names[p]}/{key}": value
        for optimizer in optimizers
        for p, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_named_state(model: GPT, optimizers: Optimizers, saved: Mapping[str, Tensor]) -> None:
    """Put back what `named_state` gave. Names that do not fit the model raise ValueError."""
    parameters = dict(model.named_parameters())
    owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    for full_name, value in saved.items():
        name, key = full_name.rsplit("/", 1)
        if name not in parameters:
            raise ValueError(f"state of {name}, which the model does not have")
        p = parameters[name]
        # AdamW's step count is a scalar; the rest has the shape of its parameter.
        if value.ndim and value.shape != p.shape:
            raise ValueError(f"state {full_name} has shape {tuple(value.shape)}, not {tuple(p.shape)}")
        owner[p].state[p][key] = value.to(p.device, copy=True)

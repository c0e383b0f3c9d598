"""Training steps, each as its project takes them, and the machine's matrix product. Runs inside a worker.

All train on uniformly random ids: what they are does not change the work.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.sizes import Size
from benchmarks.worker import Contender, timed

N_TOKENS = 1_000_000
NANOGPT_LR, NANOGPT_BETAS, NANOGPT_DECAY, GRAD_CLIP = 6e-4, (0.9, 0.95), 0.1, 1.0  # its train.py

_kept = ExitStack()  # what must stay entered while the worker lives


def random_ids(vocab_size: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    return np.random.default_rng(0).integers(0, vocab_size, N_TOKENS, dtype=np.uint16)


def finishing(device: str) -> Callable[[], object]:
    """What waits for all that was given to a device."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def compiled(module: Any, device: str) -> Any:
    """The module, on a GPU compiled and with TF32, as nanoGPT's train.py does."""
    if device != "cuda":
        return module
    torch.set_float32_matmul_precision("high")
    return torch.compile(module)


def windows(size: Size, device: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """Batches at random places, drawn as nanoGPT does: x, y, each (batch_size, block_size) int64."""
    ids = random_ids(size.vocab_size)

    def draw() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(ids) - size.block_size, (size.batch_size,)).tolist()
        rows = torch.stack([torch.from_numpy(ids[i : i + size.block_size + 1].astype(np.int64)) for i in starts])
        if device == "cuda":
            rows = rows.pin_memory().to(device, non_blocking=True)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    return draw


def steps_of(
    loss: Callable[[Tensor, Tensor], Tensor],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    size: Size,
    device: str,
    precision: str,
) -> Contender:
    """The plain loop: batch, loss, gradient, clipping, update."""
    draw = windows(size, device)

    def step() -> None:
        x, y = draw()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            found = loss(x, y)
        found.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return timed(step, finishing(device)), {"threads": torch.get_num_threads(), "precision": precision}


# Each imports its own project only, so that none is charged with another's memory.


def nanogpt(checkout: str, device: str, **shape: int) -> Contender:
    """nanoGPT's model and optimizer: in fp32 and without compiling, as its README tells CPU users; on a GPU in bf16,
    compiled."""
    size = Size(**shape)
    spec = importlib.util.spec_from_file_location("nanogpt_model", f"{checkout}/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for themselves
    spec.loader.exec_module(module)
    names = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size")
    config = module.GPTConfig(**{name: shape[name] for name in names}, bias=False, dropout=0.0)
    model = module.GPT(config).to(device)
    optimizer = model.configure_optimizers(NANOGPT_DECAY, NANOGPT_LR, NANOGPT_BETAS, device)
    run = compiled(model, device)
    precision = "bf16" if device == "cuda" else "fp32"
    return steps_of(lambda x, y: run(x, y)[1], model, optimizer, size, device, precision)


def hugging_face(precision: str, device: str, **shape: int) -> Contender:
    """GPT2LMHeadModel and torch's AdamW, in fp32 or under bf16 autocast; on a GPU compiled."""
    from benchmarks.hugging_face import build

    size = Size(**shape)
    model = build(size).train().to(device)
    settings: dict[str, Any] = {
        "lr": NANOGPT_LR,
        "betas": NANOGPT_BETAS,
        "weight_decay": NANOGPT_DECAY,
        "fused": device == "cuda",
    }
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    run = compiled(model, device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        logits = run(input_ids=x, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    return steps_of(loss, model, optimizer, size, device, precision)


def gptlite(optimizer: str, precision: str, device: str, **shape: int) -> Contender:
    """What `gptlite train` does: every other `auto` decided by the program, its own train_step on its own batches."""
    from gptlite.compute.device import Hardware, settings
    from gptlite.config.schema import RunConfig
    from gptlite.data.dataset.tokens import TokenArray
    from gptlite.model.sizes import muon_flops, update_flops
    from gptlite.planning.auto import resolve
    from gptlite.tokenizers.char import CharTokenizer
    from gptlite.training.step import StepStats, train_step
    from gptlite.training.trainer import assemble

    size = Size(**shape)
    wanted = {
        **{f"model.{name}": shape[name] for name in ("n_layer", "n_head", "n_embd", "block_size")},
        "model.activation": "relu",
        "run.device": device,
        "run.precision": precision,
        "train.batch_size": size.batch_size,
        "train.optimizer": optimizer,
        "train.max_steps": 10**9,  # the benchmark decides when to end
    }
    tokens = TokenArray(random_ids(size.vocab_size), "random ids")
    setup = resolve(RunConfig().with_values(wanted), size.vocab_size, tokens.n_tokens, Hardware.detect())
    tokenizer = CharTokenizer("".join(map(chr, range(size.vocab_size - 1))))  # and end-of-text
    trainer = assemble(setup.cfg, tokenizer, tokens, tokens)
    _kept.enter_context(settings(trainer.compute, deterministic=setup.cfg.run.deterministic))
    done, unread = 0, deque[StepStats]()

    def step() -> None:
        nonlocal done
        unread.append(train_step(trainer, done))
        done += 1
        while len(unread) > trainer.compute.updates_ahead:
            unread.popleft().check_finite(setup.cfg)  # which waits for its end

    own = muon_flops(setup.cfg.model) if optimizer == "muon" else 0
    return timed(step, finishing(device)), {
        "threads": torch.get_num_threads(),
        "precision": trainer.compute.precision,
        "reasons": {key: dataclasses.asdict(choice) for key, choice in setup.reasons.items()},
        "model_flops": update_flops(setup.cfg.model, size.vocab_size, size.batch_size * size.block_size),
        "optimizer_flops": own,
    }


def matrix_product(precision: str, device: str, shapes: Sequence[tuple[int, int, int]]) -> Contender:
    """A unit is one GFLOP of multiplying (m, k) by (k, n) at the fastest of some shapes, into allocated memory."""
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    units = []
    for m, k, n in shapes:
        a, b = (torch.randn(shape, dtype=dtype, device=device) for shape in ((m, k), (k, n)))
        multiply = functools.partial(torch.mm, a, b, out=a.new_empty(m, n))
        units.append((timed(multiply, finishing(device)), 2 * m * k * n / 1e9))

    def turn(times: int) -> float:
        share = times / len(units)
        return min(multiply(max(1, round(share / gflop))) / gflop for multiply, gflop in units)

    return turn, {"threads": torch.get_num_threads()}

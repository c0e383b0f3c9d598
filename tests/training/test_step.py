import contextlib
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.batches import Batch, Batches
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import Diverged
from gptlite.model.gpt import GPT
from gptlite.tokenizers.char import CharTokenizer
from gptlite.training.diagnostics import UpdateRatio, layer_grad_norms
from gptlite.training.objective import Objective, taught_nll_sum
from gptlite.training.optim.build import build_optimizers
from gptlite.training.step import accumulate_gradients, dropout_masks_for, train_step, vocab_sample_for
from gptlite.training.trainer import Trainer, assemble

VOCAB_SIZE = 13
# Four tokens out of five are the same one: something to learn in 20 updates.
TEXT = TokenArray(
    np.random.default_rng(0).integers(-4 * VOCAB_SIZE, VOCAB_SIZE, 3000).clip(0).astype(np.uint16), "text"
)


def config(**values) -> RunConfig:
    base = {
        "run.device": "cpu",
        "run.precision": "fp32",
        "run.attention": "fused",
        "run.threads": 1,
        "run.compile": False,
        "model.n_layer": 2,
        "model.n_head": 2,
        "model.n_embd": 16,
        "model.block_size": 8,
        "train.batch_size": 8,
        "train.micro_batch_size": 8,
        "train.optimizer": "adamw",
        "train.max_steps": 50,
        "train.warmup_steps": 5,
        "train.lr": 1e-2,
    }
    return RunConfig().with_values({**base, **values})


BY_OPTIMIZER = {"adamw": {"train.optimizer": "adamw"}, "muon": {"train.optimizer": "muon", "train.adamw_lr": 0.005}}


def trainer_for(cfg: RunConfig, dtype: torch.dtype = torch.float32) -> Trainer:
    trainer = assemble(cfg, CharTokenizer("abcdefghijkl"), TEXT, TEXT)
    trainer.model.to(dtype)
    batches = Batches(TEXT, cfg.model.block_size, cfg.train.batch_size, seed=1)
    return dataclasses.replace(trainer, batches=batches)


def losses(cfg: RunConfig, dtype: torch.dtype, steps: int = 20) -> list[float]:
    trainer = trainer_for(cfg, dtype)
    return [train_step(trainer, step).loss for step in range(steps)]


@pytest.mark.parametrize(
    ("optimizer", "dtype", "teacher", "tolerance"),
    [
        ("adamw", torch.float64, 0.0, 1e-12),
        ("adamw", torch.float64, 0.5, 1e-12),
        ("muon", torch.float64, 0.5, 1e-12),
        ("adamw", torch.float32, 0.0, 2e-4),
        ("muon", torch.float32, 0.0, 3e-3),
    ],
    ids=str,
)
def test_a_batch_gives_the_same_losses_however_it_is_cut_up(optimizer, dtype, teacher, tolerance):
    values = {**BY_OPTIMIZER[optimizer], "train.ngram_teacher": teacher}
    whole, halves, rows = (losses(config(**values, **{"train.micro_batch_size": size}), dtype) for size in (8, 4, 1))
    assert whole[-1] < whole[0] - 0.01
    assert halves == pytest.approx(whole, rel=tolerance, abs=0)
    assert rows == pytest.approx(whole, rel=tolerance, abs=0)


def test_the_teacher_has_its_weight_in_the_gradient_and_none_in_the_loss():
    gradients = {}
    for weight in (0.0, 0.25, 0.999):
        trainer = trainer_for(config(**{"train.ngram_teacher": weight}), torch.float64)
        loss = accumulate_gradients(trainer, 3)
        gradients[weight] = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
        x, y = trainer.batches.rows(3)
        assert loss.item() == pytest.approx(cross_entropy(trainer.model(x).flatten(0, 1), y.flatten()).item())
    alone = (gradients[0.999] - 0.001 * gradients[0.0]) / 0.999
    torch.testing.assert_close(gradients[0.25], 0.75 * gradients[0.0] + 0.25 * alone)
    assert (gradients[0.25] - gradients[0.0]).norm() > 0.01 * gradients[0.0].norm()


@pytest.mark.parametrize("more", [{}, {"train.ngram_teacher": 0.5}, {"train.vocab_sample": VOCAB_SIZE - 1}], ids=str)
def test_the_temperature_divides_the_logits_in_the_loss_alone(more):
    trainer = trainer_for(config(**{"train.temperature": 0.8, **more}), torch.float64)
    plain = trainer_for(config(**more), torch.float64)
    plain.model.load_state_dict(trainer.model.state_dict())
    plain.model.head.weight = torch.nn.Parameter(trainer.model.head.weight / 0.8)  # no longer tied
    assert accumulate_gradients(trainer, 3).item() == pytest.approx(accumulate_gradients(plain, 3).item(), rel=1e-12)
    x, _ = trainer.batches.rows(3)
    torch.testing.assert_close(trainer.model(x), 0.8 * plain.model(x))


def test_the_loss_with_a_teacher_is_the_mean_of_both_cross_entropies():
    logits = torch.tensor([[[0.5, 0.25, 0.25]]]).log()
    of_text, objective = taught_nll_sum(logits, torch.tensor([[0]]), torch.tensor([[[1, 1, 2, 0]]]), 0.4)
    assert of_text.item() == pytest.approx(math.log(2))
    assert objective.item() == pytest.approx((0.6 + 0.4 * (2 + 2 + 2 + 1) / 4) * math.log(2))


def test_dropout_masks_follow_from_seed_step_micro_step_and_rank_alone():
    cfg = config(**{"model.dropout": 0.5})

    def draw(*place: int) -> list[bool]:
        masks = dropout_masks_for(cfg, *place)
        assert masks is not None
        return masks.dropped((64,), 0.5).tolist()

    assert draw(3, 1, 0) == draw(3, 1, 0)
    assert len({tuple(draw(*place)) for place in [(3, 1, 0), (4, 1, 0), (3, 2, 0), (3, 1, 1)]}) == 4
    assert dropout_masks_for(config(), 0, 0, 0) is None


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_loss_or_gradient_that_is_not_finite_is_found_when_it_is_read(poison):
    trainer = trainer_for(config())
    with torch.no_grad():
        trainer.model.token_embedding.weight[3, 3] = poison
    with pytest.raises(Diverged, match=r"step 3: the loss is nan.*lower train\.lr \(it was 0\.01\)") as raised:
        train_step(trainer, 2).check_finite(trainer.cfg)
    assert raised.value.exit_code == 3


def test_an_infinite_gradient_of_a_finite_loss_stops_too():
    trainer = trainer_for(config())
    trainer.model.ln_f.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(Diverged, match=r"the norm of the gradient (inf|nan)"):
        train_step(trainer, 0).check_finite(trainer.cfg)


def test_clipping_bounds_the_norm_that_the_optimizer_sees():
    trainer = trainer_for(config(**{"train.grad_clip": 1e-3}))
    parameters = list(trainer.model.parameters())
    seen: list[float] = []

    class NormOfGradient(torch.optim.SGD):
        def step(self, closure=None):
            seen.append(math.sqrt(sum(p.grad.square().sum().item() for p in parameters)))

    stats = train_step(dataclasses.replace(trainer, optimizers=[NormOfGradient(parameters)]), 0)
    assert stats.grad_norm > 0.01
    assert seen[0] == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        # 13 tokens and 8 positions of 16; a block has norms of 16 and 16, and 48 + 16 + 64 + 64 rows of 16.
        ({}, {"embeddings": 21 * 16, "block_1": 194 * 16, "block_2": 194 * 16, "final_norm": 16}),
        (
            {"model.tie_weights": False, "model.norm": "post", "model.position": "none", "model.n_layer": 1},
            {"embeddings": 13 * 16, "block_1": 194 * 16, "head": 13 * 16},
        ),
    ],
    ids=["tied-pre", "untied-post"],
)
def test_the_norm_of_a_layers_gradient_is_over_all_of_its_parameters(values, sizes):
    model = GPT(config(**values).model, VOCAB_SIZE)
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.5)
    expected = {f"grad_norm/{layer}": 0.5 * math.sqrt(size) for layer, size in sizes.items()}
    assert layer_grad_norms(model) == pytest.approx(expected)


@pytest.mark.parametrize("values", [{"model.dropout": 0.3}, {"run.precision": "bf16", "model.norm": "post"}], ids=str)
def test_blocks_computed_again_in_the_backward_pass_change_no_bit(values):
    kept, again = (trainer_for(config(**values, **{"run.checkpoint_activations": on})) for on in (False, True))
    applied = 0

    def count(*_):
        nonlocal applied
        applied += 1

    again.model.blocks[1].register_forward_pre_hook(count)
    for step in range(3):
        assert train_step(kept, step).loss == train_step(again, step).loss
    assert applied == 6
    assert all(torch.equal(p, q) for p, q in zip(kept.model.parameters(), again.model.parameters(), strict=True))


def test_diagnostics_do_not_change_the_update():
    ends = []
    for measured in (False, True):
        trainer = trainer_for(config(**BY_OPTIMIZER["muon"], **{"log.grad_norms": True}))
        model = trainer.model
        update_ratio = UpdateRatio(model, Dist()) if measured else None
        for step in range(3):
            stats = train_step(trainer, step, update_ratio=update_ratio)
        ends.append((stats.loss, stats.grad_norm, [p.detach().clone() for p in model.parameters()]))
    (loss, norm, parameters), (loss_seen, norm_seen, parameters_seen) = ends
    assert (loss, norm) == (loss_seen, norm_seen)
    assert all(torch.equal(p, q) for p, q in zip(parameters, parameters_seen, strict=True))
    assert {"update_ratio", "lr/muon", "lr/adamw", "grad_norm/block_1"} <= stats.more.keys()


@pytest.mark.parametrize(("micro", "processes"), [(2, 1), (8, 2), (2, 4)])
def test_the_ids_that_estimate_the_loss_are_those_of_the_update_however_its_batch_is_cut(micro, processes):
    def gradients(micro_batch_size: int, processes: int) -> list[torch.Tensor]:
        values = {"train.vocab_sample": 6, "train.micro_batch_size": min(micro_batch_size, 8 // processes)}
        trainer = trainer_for(config(**values), torch.float64)
        for rank in range(processes):
            accumulate_gradients(dataclasses.replace(trainer, dist=Dist(rank, processes)), 3)
        return [p.grad for p in trainer.model.parameters()]

    for whole, parts in zip(gradients(8, 1), gradients(micro, processes), strict=True):
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-15)


def test_each_update_has_a_sample_of_its_own():
    trainer = trainer_for(config(**{"train.vocab_sample": 6}))
    first, second = (vocab_sample_for(trainer, step) for step in (0, 1))
    assert first is not None
    assert second is not None
    assert first.ids.tolist() != second.ids.tolist()


def test_training_on_a_sample_of_the_ids_learns_what_training_on_all_does():
    def loss_on_all_ids(**values) -> float:
        trainer = trainer_for(config(**values))
        for step in range(50):
            train_step(trainer, step)
        return float(accumulate_gradients(dataclasses.replace(trainer, vocab_sampler=None), 50))

    assert loss_on_all_ids(**{"train.vocab_sample": 9}) == pytest.approx(loss_on_all_ids(), rel=0.05)


class Positions:
    """Batches of a text whose ids are their positions; notes where the windows start that training reads."""

    def __init__(self, n_tokens: int, cfg: RunConfig) -> None:
        tokens = TokenArray(np.arange(n_tokens, dtype=np.uint32))
        self._batches = Batches(tokens, cfg.model.block_size, cfg.train.batch_size, cfg.run.seed)
        self.starts: list[int] = []

    def rows(self, step: int, first_row: int = 0, n_rows: int | None = None) -> Batch:
        x, y = self._batches.rows(step, first_row, n_rows)
        self.starts += x[:, 0].tolist()
        return x % VOCAB_SIZE, y % VOCAB_SIZE


def starts_of(steps: Sequence[int], world_size: int, micro_batch_size: int, n_tokens: int) -> list[int]:
    """The starts of the windows that all processes train on in these steps, each process by itself."""
    cfg = config(**{"train.batch_size": 24, "train.micro_batch_size": micro_batch_size, "model.n_layer": 1})
    batches = Positions(n_tokens, cfg)
    for rank in range(world_size):
        trainer = dataclasses.replace(trainer_for(cfg), batches=batches, dist=Dist(rank, world_size))
        for step in steps:
            accumulate_gradients(trainer, step)
    return sorted(batches.starts)


@pytest.mark.parametrize(("world_size", "micro_batch_size"), [(1, 12), (2, 4), (3, 4), (8, 1)])
def test_an_epoch_covers_every_window_once_on_any_number_of_processes(world_size, micro_batch_size):
    n_tokens = 48 * 8 + 13  # 48 windows of 8: two batches of 24
    for epoch in (0, 1, 10**11):  # the last one without those before it, as after a resume
        steps = [2 * epoch, 2 * epoch + 1]
        starts = starts_of(steps, world_size, micro_batch_size, n_tokens)
        assert np.diff(starts).tolist() == [8] * 47
        assert 0 <= starts[0] < 13
        assert starts == starts_of(steps, 1, 24, n_tokens)


class OnMeta(Compute):
    """A device whose tensors have no numbers: whatever reads one, or mixes it with another device, fails."""

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()


@pytest.mark.parametrize("optimizer", BY_OPTIMIZER)
@pytest.mark.parametrize("more", [{"model.dropout": 0.1}, {"train.ngram_teacher": 0.2}], ids=str)
def test_an_update_reads_no_number_from_the_device(optimizer, more, monkeypatch):
    monkeypatch.setattr("gptlite.training.step.Arriving", lambda numbers: numbers)
    cfg = config(**BY_OPTIMIZER[optimizer], **more, **{"train.micro_batch_size": 4})
    trainer = trainer_for(cfg)
    compute = OnMeta(torch.device("meta"), "fp32", "fused", 1)
    model = trainer.model.to("meta")
    optimizers = build_optimizers(model, cfg.train, compute)
    for group in optimizers[-1].param_groups:
        group.update(fused=False, foreach=True)  # torch's fused AdamW has no version for this device
    objective = Objective(model, model.hidden, compute, cfg.train)
    trainer = dataclasses.replace(trainer, compute=compute, objective=objective, optimizers=optimizers)
    for step in range(2):
        assert train_step(trainer, step).loss_and_norm.shape == (2,)


def test_in_fp16_a_gradient_that_overflows_is_skipped_and_halves_the_scale_until_the_scale_is_too_small():
    trainer = trainer_for(config(**BY_OPTIMIZER["muon"], **{"run.precision": "fp16"}))
    handle = trainer.model.ln_f.weight.register_hook(lambda gradient: gradient * math.inf)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    train_step(trainer, 0).check_finite(trainer.cfg)
    assert trainer.scaler.get_scale() == 2.0**15  # torch begins with 2^16
    assert all(torch.equal(p, q) for p, q in zip(before, trainer.model.parameters(), strict=True))
    handle.remove()
    train_step(trainer, 1).check_finite(trainer.cfg)
    assert not any(torch.equal(p, q) for p, q in zip(before, trainer.model.parameters(), strict=True) if p.ndim == 2)
    trainer.scaler.update(0.5)
    trainer.model.ln_f.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(Diverged, match=r"the norm of the gradient (inf|nan)"):
        train_step(trainer, 2, update_ratio=UpdateRatio(trainer.model, Dist())).check_finite(trainer.cfg)

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gptlite.compute.device import Compute
from gptlite.config.schema import ModelSection
from gptlite.config.training import TrainSection
from gptlite.model.gpt import GPT
from gptlite.model.sizes import muon_flops
from gptlite.training.optim.build import build_optimizers
from gptlite.training.optim.muon import Muon, gram_factor, newton_schulz, orthogonalise


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (5, 7)])
def test_singular_values_are_pushed_to_about_one_and_directions_are_kept(shape):
    X = normal(3, *shape)
    Y = orthogonalise(X, torch.float64)
    for x, y in zip(X.double(), Y.double(), strict=True):
        u, s, vt = torch.linalg.svd(x, full_matrices=False)
        assert s.min() < 0.5 * s.max()
        turned = u.T @ y @ vt.T
        assert turned.diagonal().min() > 0.6
        assert turned.diagonal().max() < 1.3
        assert (turned - torch.diag(turned.diagonal())).abs().max() < 1e-5


@pytest.mark.parametrize("shape", [(12, 12), (8, 32), (32, 8)])
def test_updates_equal_those_of_torch_within_its_bf16(shape):
    ours, theirs = torch.nn.Parameter(normal(*shape)), torch.nn.Parameter(normal(*shape))
    a = Muon([{"params": [ours]}], lr=0.01, momentum=0.9, weight_decay=0.1, dtype=torch.bfloat16)
    b = torch.optim.Muon([theirs], lr=0.01, momentum=0.9, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(5):
        ours.grad = normal(*shape, seed=10 + step)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
    moved = (theirs - normal(*shape)).norm()
    # bf16 keeps 8 bits; batched and single products round differently.
    assert (ours - theirs).norm() < 0.02 * moved


def test_matrices_of_one_shape_taken_together_move_as_they_would_alone():
    def trained(together: bool) -> list[torch.Tensor]:
        params = [
            torch.nn.Parameter(normal(*shape, seed=i).double()) for i, shape in enumerate([(6, 9), (9, 6), (6, 9)])
        ]
        groups = [[p] for p in params] if not together else [params]
        optimizers = [Muon([{"params": g}], lr=0.1, momentum=0.5, weight_decay=0.1) for g in groups]
        for i, p in enumerate(params):
            p.grad = normal(*p.shape, seed=50 + i).double()
        for optimizer in optimizers:
            optimizer.step()
        return [p.detach() for p in params]

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-12, atol=1e-14)


def test_parts_are_orthogonalised_on_their_own():
    stacked = torch.nn.Parameter(normal(12, 4).double())
    pieces = [torch.nn.Parameter(piece.clone()) for piece in stacked.detach().chunk(3)]
    gradient = normal(12, 4, seed=1).double()
    stacked.grad = gradient
    for piece, part in zip(pieces, gradient.chunk(3), strict=True):
        piece.grad = part.clone()
    settings = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1}
    Muon([{"params": [stacked], "parts": 3}], **settings).step()
    Muon([{"params": pieces}], **settings).step()
    torch.testing.assert_close(stacked.detach(), torch.cat([p.detach() for p in pieces]), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (5, 7)])
def test_the_way_through_the_gram_matrix_gives_the_iteration_as_written(shape):
    X = normal(3, *shape).double()
    X = X / X.norm(dim=(-2, -1), keepdim=True)
    torch.testing.assert_close(gram_factor(X @ X.mT) @ X, newton_schulz(X), rtol=0, atol=1e-10)
    single = X.float()
    torch.testing.assert_close(gram_factor(single @ single.mT) @ single, newton_schulz(single), rtol=0, atol=1e-4)


def test_a_direction_with_no_gradient_stays_without_and_the_others_are_not_hurt():
    X = normal(1, 16, 64)
    X[:, 8:] = X[:, :8]  # rank 8 of 16
    X = X / X.norm()
    torch.testing.assert_close(gram_factor(X @ X.mT) @ X, newton_schulz(X), rtol=0, atol=1e-3)


@pytest.mark.parametrize("variant", [None, "no_feed_forward"])
def test_the_operations_of_muon_are_those_that_torch_counts(variant):
    activation = {"activation": "relu"} if variant else {}
    cfg = ModelSection(n_layer=2, n_head=2, n_embd=8, block_size=4, variant=variant, **activation)
    model = GPT(cfg, 11, rng=torch.Generator().manual_seed(0))
    train = TrainSection(lr=0.01, optimizer="muon", adamw_lr=None)
    muon, _ = build_optimizers(model, train, Compute(torch.device("cpu"), "fp32", "fused", 1))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with FlopCounterMode(display=False) as counter:
        muon.step()
    assert muon_flops(cfg) == counter.get_total_flops()

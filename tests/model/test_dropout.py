import math

import pytest
import torch

from gptlite.config.schema import ModelSection
from gptlite.model import dropout as module
from gptlite.model.dropout import DropoutMasks, dropout, hashes
from gptlite.model.gpt import GPT


def hash_of(x: int, key: tuple[int, int]) -> int:
    """The same arithmetic in Python's whole numbers, modulo 2**32."""
    x = (x + key[0]) % 2**32
    x = ((x ^ (x >> 16)) * 0x85EBCA6B + key[1]) % 2**32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) % 2**32
    return x ^ (x >> 16)


@pytest.mark.parametrize("key", [(0, 0), (-5, 77), (2**31 - 1, -(2**31))])
def test_the_hash_is_that_of_unsigned_32_bit_arithmetic(key):
    got = [x % 2**32 for x in hashes(1000, 50, torch.tensor(key, dtype=torch.int32)).tolist()]
    assert got == [hash_of(x, key) for x in range(1000, 1050)]


def test_without_keys_it_is_the_finaliser_of_murmur3():
    # 1 -> 0x514e28b7, as published with smhasher (seed 1, empty key: only the finaliser acts).
    assert hashes(1, 1, torch.zeros(2, dtype=torch.int32)).item() == 0x514E28B7


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_dropped_fraction_is_p_within_four_standard_deviations(p):
    n = 1_000_000
    dropped = DropoutMasks(3).dropped((1000, 1000), p)
    deviation = math.sqrt(p * (1 - p) / n)
    assert abs(dropped.double().mean().item() - p) < 4 * deviation
    # Neighbours, rows and halves of a hash are independent: both are dropped with probability p * p.
    flat = dropped.flatten()
    for distance in (1, 2, 1000, 65536):
        both = (flat[distance:] & flat[:-distance]).double().mean().item()
        assert abs(both - p * p) < 5 * math.sqrt(p * p * (1 - p * p) / n) + 4 * deviation * p


def test_masks_of_one_pass_differ_and_those_of_equal_seeds_are_equal():
    def draw(seed):
        dropout_masks = DropoutMasks(seed)
        return [dropout_masks.dropped((64, 64), 0.5) for _ in range(3)]

    first, again, other = draw(7), draw(7), draw(8)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    # Two independent masks agree on about half of their 4,096 elements (standard deviation 32).
    for a, b in [(first[0], first[1]), (first[1], first[2]), *zip(first, other, strict=True)]:
        assert 1900 < int((a == b).sum()) < 2200


def test_a_mask_does_not_depend_on_how_it_is_cut_into_chunks(monkeypatch):
    shape = (7, 143)
    whole = DropoutMasks(1).dropped(shape, 0.3)
    monkeypatch.setattr(module, "CHUNK", 10)
    assert torch.equal(DropoutMasks(1).dropped(shape, 0.3), whole)


def test_what_is_kept_is_scaled_up_and_gradients_go_through_it_alone():
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    before = torch.random.get_rng_state()
    y = dropout(x, 0.25, DropoutMasks(3))
    y.sum().backward()
    assert sorted(set(y.tolist())) == pytest.approx([0.0, 4 / 3])
    assert torch.equal(x.grad, y)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("p", [0.2, 1 - 2**-16, 1 - 2**-17, 0.999999999999])
def test_the_expectation_stays_for_every_probability(p):
    n, kept = 1 << 22, max(1 - p, 2**-16)  # the least that 16 bits can tell from nothing
    y = dropout(torch.ones(n), p, DropoutMasks(5))
    assert y.isfinite().all()
    assert abs(y.double().mean().item() - 1) < 4 * math.sqrt((1 - kept) / (kept * n)) + 1e-5


def test_no_masks_or_no_probability_change_nothing():
    x = torch.randn(5)
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, DropoutMasks(0)) is x


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's compiler, of itself
def test_a_compiled_model_draws_the_same_masks_and_is_compiled_once():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    cfg = ModelSection(n_layer=2, n_head=2, n_embd=8, block_size=4, dropout=0.3)
    model = GPT(cfg, 11, rng=torch.Generator().manual_seed(0))
    compiled = torch.compile(model, backend=backend, dynamic=False)
    idx = torch.arange(8).view(2, 4)
    for seed in (1, 2**64 - 1, 5):
        torch.testing.assert_close(
            compiled(idx, dropout_masks=DropoutMasks(seed)), model(idx, dropout_masks=DropoutMasks(seed))
        )
    assert len(graphs) == 1

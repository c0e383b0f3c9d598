"""Every rule of `auto`: what is chosen, from what, and what is refused."""

from __future__ import annotations

import pytest

from gptlite.compute.choice import GIVEN, Choice
from gptlite.compute.device import Hardware, compile_obstacle
from gptlite.config.schema import ModelSection, RunConfig, RunSection
from gptlite.errors import ConfigError
from gptlite.model.sizes import largest_block_product_flops
from gptlite.planning.auto import (
    choose_compile,
    choose_compute,
    choose_micro_batch_size,
    choose_threads,
    choose_vocab_sample,
)
from gptlite.planning.choose_training import choose_adamw_lr, choose_lr, choose_optimizer


def hardware(*devices: str, bf16: tuple[str, ...] = (), threads: int = 8) -> Hardware:
    return Hardware(devices, frozenset(bf16), lambda: Choice(threads, "the cores this process may use"))


@pytest.mark.parametrize(
    ("machine", "block_size", "expected"),
    [
        (hardware("cpu"), 64, ("cpu", "fp32", "fused", 8)),
        (hardware("cpu", bf16=("cpu",)), 512, ("cpu", "bf16", "batched", 8)),
        (hardware("cpu", bf16=("cpu",)), 513, ("cpu", "bf16", "fused", 8)),
        (hardware("cuda", "cpu", bf16=("cuda",)), 64, ("cuda", "bf16", "fused", 8)),
        (hardware("cuda", "cpu", bf16=("cpu",)), 64, ("cuda", "fp32", "fused", 8)),
        (hardware("mps", "cpu"), 64, ("cpu", "fp32", "fused", 8)),
    ],
)
def test_auto_follows_from_the_hardware_and_the_context_alone(machine, block_size, expected):
    chosen = choose_compute(RunSection(), block_size, machine)
    assert tuple(choice.value for choice in chosen.values()) == expected
    assert list(chosen) == ["run.device", "run.precision", "run.attention", "run.threads"]
    assert all(choice.reason and choice.reason != GIVEN for choice in chosen.values())


def test_mps_is_for_training_models_whose_products_are_worth_its_kernels():
    mac = hardware("mps", "cpu")

    def device(**values: int) -> Choice:
        product = largest_block_product_flops(ModelSection(**values), tokens=4096)
        return choose_compute(RunSection(), 64, mac, largest_product=product)["run.device"]

    assert device(n_embd=128).value == "cpu"
    assert device(n_embd=256).value == "mps"
    sampled = choose_compute(RunSection(device="mps"), 64, mac)["run.device"]
    assert (sampled.value, sampled.reason) == ("mps", GIVEN)


def test_what_is_given_wins_and_a_missing_device_is_refused():
    run = RunSection(device="cpu", precision="bf16", attention="plain", threads=3)
    chosen = choose_compute(run, 64, hardware("cuda", "cpu"))
    assert {choice.value for choice in chosen.values()} == {"cpu", "bf16", "plain", 3}
    assert {choice.reason for choice in chosen.values()} == {GIVEN}
    with pytest.raises(ConfigError, match=r"run\.device is cuda, and torch finds no such device here\."):
        choose_compute(RunSection(device="cuda"), 64, hardware("mps", "cpu"))


def test_a_micro_batch_of_fewer_processes_is_cut_to_what_each_has():
    cfg = RunConfig().with_values({"train.batch_size": 12, "train.micro_batch_size": 12})
    assert choose_micro_batch_size(cfg, 1) == Choice(12, GIVEN)
    assert choose_micro_batch_size(cfg, 4).value == 3
    with pytest.raises(ConfigError, match="does not divide the 3 sequences"):
        choose_micro_batch_size(cfg.with_values({"train.micro_batch_size": 2}), 4)


TOO_SHORT = Choice(False, "so short a training does not pay for the slow start of compiling")
FOR_GPU = Choice(True, "torch can compile for this GPU")


@pytest.mark.parametrize(
    ("wanted", "device", "flops", "minutes", "obstacle", "expected"),
    [
        ("auto", "cpu", 1e18, None, "never asked", Choice(False, "on cpu compiling seldom pays for its slow start")),
        ("auto", "mps", 1e18, None, "never asked", Choice(False, "on mps compiling seldom pays for its slow start")),
        ("auto", "cuda", 2e16, None, "", FOR_GPU),
        ("auto", "cuda", 2e16, None, "no Triton", Choice(False, "no Triton")),
        ("auto", "cuda", 9e15, None, "never asked", TOO_SHORT),
        ("auto", "cuda", 0.0, 5.0, "", FOR_GPU),  # the updates of a training that the clock ends are not known
        ("auto", "cuda", 0.0, 4.9, "never asked", TOO_SHORT),
        (False, "cuda", 1e18, None, "never asked", Choice(False, GIVEN)),
        (True, "cpu", 0.0, None, "", Choice(True, GIVEN)),
    ],
)
def test_a_gpu_is_compiled_for_where_torch_can_and_it_pays(wanted, device, flops, minutes, obstacle, expected):
    def ask(_: str) -> str:
        assert obstacle != "never asked"
        return obstacle

    assert choose_compile(wanted, device, ask, flops=flops, minutes=minutes) == expected


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    """A machine whose PATH holds no program, and where nothing was compiled before."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch, of itself
def test_without_a_cpp_compiler_what_was_asked_for_is_refused():
    with pytest.raises(ConfigError, match=r"is true, but .*No working C\+\+ compiler.*Install") as refused:
        choose_compile(True, "cpu", compile_obstacle, flops=0.0, minutes=None)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("product", "wanted", "expected"),
    [
        (4.2e6, "auto", Choice(1, "products of only 4.2 million operations gain nothing from a second thread")),
        (19e6, "auto", Choice(8, "all")),
        (4.2e6, 2, Choice(2, "given")),
    ],
)
def test_a_model_with_small_products_is_trained_on_one_thread(product, wanted, expected):
    assert choose_threads(wanted, lambda: Choice(8, "all"), largest_product=product) == expected


@pytest.mark.parametrize(
    ("optimizer", "n_embd", "expected"),
    [("adamw", 32, 0.002), ("adamw", 400, 0.001), ("adamw", 768, 0.00052), ("muon", 64, 0.02), ("muon", 400, 0.004)],
)
def test_the_learning_rate_that_auto_chooses_falls_with_the_width_of_wide_models(optimizer, n_embd, expected):
    cfg = RunConfig().with_values({"train.optimizer": optimizer, "model.n_embd": n_embd, "model.init": "zero"})
    assert choose_lr(cfg).value == expected


@pytest.mark.parametrize(("n_embd", "expected"), [(16, 0.02), (132, 0.01), (2116, 0.0025)])
def test_with_previous_token_heads_the_rate_of_muon_falls_more_slowly_with_the_width(n_embd, expected):
    cfg = RunConfig().with_values({"train.optimizer": "muon", "model.n_embd": n_embd})
    assert choose_lr(cfg).value == pytest.approx(expected, rel=0.01)
    without = [{"model.init": "gpt2"}, {"model.position": "sinusoidal"}]
    assert [choose_lr(cfg.with_values(each)).value for each in without] == [float(f"{min(0.02, 1.6 / n_embd):.2g}")] * 2
    adamw = cfg.with_values({"train.optimizer": "adamw"})
    assert choose_lr(adamw).value == choose_lr(adamw.with_values({"model.init": "zero"})).value


def test_next_to_muon_adamw_takes_more_for_larger_vocabularies():
    cfg = RunConfig().with_values({"train.optimizer": "muon"})
    rates = [choose_adamw_lr(cfg, vocab_size).value for vocab_size in (64, 512, 4096)]
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.05)
    assert rates[2] == pytest.approx(4 * rates[0], rel=0.05)
    assert choose_adamw_lr(cfg.with_values({"train.optimizer": "adamw"}), 64).value is None
    assert choose_adamw_lr(cfg.with_values({"train.adamw_lr": 0.3}), 64) == Choice(0.3, GIVEN)
    going_on = cfg.with_values({"train.from": "base"})  # three tenths, as measured
    assert choose_adamw_lr(going_on, 4096).value == pytest.approx(0.3 * rates[-1], rel=0.03)
    assert choose_lr(going_on).value == pytest.approx(0.3 * choose_lr(cfg).value, rel=0.03)


def test_a_learning_rate_that_is_asked_for_is_taken():
    assert choose_lr(RunConfig().with_values({"train.lr": 0.7})) == Choice(0.7, GIVEN)


@pytest.mark.parametrize(
    ("batch_size", "block_size", "world_size", "expected"),
    [(16, 128, 1, 16), (48, 128, 1, 24), (64, 256, 2, 16), (7, 4096, 1, 1), (3, 8192, 1, 1), (10**9, 128, 1, 32)],
)
def test_micro_batch_size_is_the_largest_divisor_that_fits_4096_tokens(batch_size, block_size, world_size, expected):
    cfg = RunConfig().with_values(
        {
            "run.device": "cpu",
            "train.batch_size": batch_size,
            "model.block_size": block_size,
            "train.micro_batch_size": "auto",
        }
    )
    assert choose_micro_batch_size(cfg, world_size).value == expected


def test_a_batch_that_the_processes_cannot_share_is_refused():
    cfg = RunConfig().with_values({"train.batch_size": 8})
    with pytest.raises(ConfigError, match=r"train\.batch_size is 8, which is not a multiple of the 3 processes"):
        choose_micro_batch_size(cfg, 3)


@pytest.mark.parametrize(
    ("wanted", "device", "vocab_size", "expected"),
    [
        ("auto", "cpu", 4096, Choice(1536, "4,096 ids at width 16 on cpu")),
        ("auto", "cpu", 66, Choice(None, "66 ids at width 16 on cpu")),
        ("auto", "cuda", 4096, Choice(None, "4,096 ids at width 16 on cuda")),
        (None, "cpu", 4096, Choice(None, GIVEN)),
        (65, "cpu", 66, Choice(65, GIVEN)),
    ],
)
def test_a_sample_of_the_vocabulary_is_taken_where_it_is_large_on_a_cpu(wanted, device, vocab_size, expected):
    cfg = RunConfig().with_values({"train.vocab_sample": wanted, "run.device": device, "model.n_embd": 16})
    assert choose_vocab_sample(cfg, vocab_size) == expected
    if wanted == "auto":
        assert choose_vocab_sample(cfg.with_values({"train.ngram_teacher": 0.5}), vocab_size).value is None


def test_a_sample_as_large_as_the_vocabulary_is_refused():
    with pytest.raises(ConfigError, match=r"train\.vocab_sample is 66, and the vocabulary has 66 ids\. Use fewer"):
        choose_vocab_sample(RunConfig().with_values({"run.device": "cpu", "train.vocab_sample": 66}), 66)


def test_auto_takes_muon_only_while_it_costs_less_than_the_model():
    def chosen(batch_size: int) -> str:
        values = {"train.batch_size": batch_size, "model.n_embd": 64, "model.block_size": 8}
        cfg = RunConfig().with_values(values)
        return choose_optimizer(cfg, 100).value

    assert chosen(1) == "adamw"
    assert chosen(64) == "muon"

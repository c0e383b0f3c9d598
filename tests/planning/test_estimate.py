"""What is said of a run before it starts, against runs and calculations by hand."""

from __future__ import annotations

import pytest
from training_runs import train_new

from gptlite.config.loading import load_config
from gptlite.data.preparing.prepare import prepare
from gptlite.formatting import amount, size
from gptlite.planning.plan import count_evaluations, count_saves, estimate_run, expected_memory
from gptlite.runs.checkpoint import Checkpoint
from gptlite.training.dry_run import Times, run_length

LIBRARIES, VOCAB, MIB = 200 * 2**20, 100, 2**20


def resolved(tiny, **values):
    """A config without `auto`: of AdamW in fp32 on a CPU."""
    chosen = {"run.device": "cpu", "run.precision": "fp32", "run.attention": "fused", "train.optimizer": "adamw"}
    sizes = {"train.batch_size": 48, "train.micro_batch_size": 48, "eval.batch_size": 1, "model.block_size": 512}
    return tiny.with_values({**chosen, **sizes, **{name.replace("__", "."): value for name, value in values.items()}})


def expect(cfg, vocab_size=VOCAB):
    return expected_memory(cfg, vocab_size, libraries=LIBRARIES)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"model.bias": True, "model.position": "none", "model.tie_weights": False},
        {"model.variant": "no_feed_forward"},
        {"model.position": "sinusoidal", "model.scale_embeddings": True},
    ],
)
def test_optimizer_and_checkpoint_take_the_bytes_that_are_said(tiny, tmp_path, optimizer, values):
    asked = tiny.with_values({"train.optimizer": optimizer, "train.max_steps": 2, "model.n_embd": 96, **values})
    made = train_new(asked, base="tiny", root=tmp_path / "runs")
    cfg = load_config(made.run.path / "config.yaml")
    newest = sorted(made.run.checkpoints.glob("step-*"))[-1]
    state = Checkpoint.open(newest).read_tensors("optimizer.safetensors")
    said = estimate_run(cfg, made.prepared, cfg.train.updates, libraries=LIBRARIES)
    assert said.memory.optimizer == pytest.approx(sum(t.nbytes for t in state.values()), rel=1e-3)
    assert said.disk.checkpoint == pytest.approx(sum(f.stat().st_size for f in newest.iterdir()), rel=0.05)
    assert len(list(made.run.checkpoints.glob("step-*"))) <= said.disk.kept


def test_epochs_are_tokens_trained_on_over_those_of_all_windows(tiny, tmp_path):
    (tmp_path / "a.txt").write_text("ab" * 500)
    sizes = {"model__block_size": 16, "train__batch_size": 8, "train__micro_batch_size": 8}
    cfg = resolved(tiny, data__source=str(tmp_path / "a.txt"), **sizes)
    prepared = prepare(cfg.data, cfg.tokenizer)
    said = estimate_run(cfg, prepared, 12, libraries=LIBRARIES)
    assert said.text.tokens == 900  # a tenth of the characters is validation
    assert said.text.trained == 12 * 8 * 16
    assert said.text.epochs == pytest.approx(12 * 8 / 55)  # windows: 900 = 55 * 16 + 20
    assert said.text.tokens_per_parameter == pytest.approx(900 / said.parameters.total)
    assert estimate_run(cfg, prepared, None, libraries=LIBRARIES).text.epochs is None
    assert "900 tokens of text" in str(said)
    assert str(said).endswith(", trained on 1.54k: 1.7 epochs")


def test_memory_by_hand_of_two_blocks_of_width_32_with_100_ids(tiny):
    shape = {"model.n_layer": 2, "model.n_head": 2, "model.n_embd": 32}

    def of(**values):
        return expect(resolved(tiny, **values).with_values(shape))

    n_parameters = 2 * (12 * 32**2 + 2 * 32) + 32 + 100 * 32 + 512 * 32
    tokens, state = 48 * 512, 16 * n_parameters
    plain, fused = of(run__attention="plain"), of().activations
    assert (plain.weights, plain.gradients, plain.optimizer) == (state // 4, state // 4, state // 2)
    logits = tokens * 3 * 100 * 4
    assert plain.activations == tokens * 4 * (2 * 17 * 32 + (2 * 2 + 6) * 2 * 512) + logits
    assert plain.peak == LIBRARIES + 40 * MIB + state + plain.activations
    assert fused == tokens * 2 * 4 * 17 * 32 + logits
    assert of(model__dropout=0.1).activations == plain.activations  # the weights are written to be dropped
    assert of(run__precision="bf16").activations - logits == (fused - logits) / 2
    assert of(run__checkpoint_activations=True).activations == tokens * 4 * (17 * 32 + 32) + logits
    assert of(train__micro_batch_size=24).activations == fused / 2
    assert of(eval__batch_size=96).activations == fused + logits
    cfg = resolved(tiny, run__parallel="fsdp", train__batch_size=48, model__n_embd=64)
    whole, part = (expected_memory(cfg, 100, libraries=0, processes=n) for n in (1, 4))
    assert whole.peak - part.peak == (whole.weights + whole.gradients + whole.optimizer) * 3 / 4
    on_gpu = of(run__device="cuda")
    assert (on_gpu.libraries, on_gpu.peak) == (0, state + fused)


def test_where_activations_are_few_copies_of_the_parameters_take_more(tiny):
    cfg = resolved(tiny, train__batch_size=1, train__micro_batch_size=1, run__device="cuda", model__n_embd=64)
    adamw, muon = expect(cfg), expect(cfg.with_values({"train.optimizer": "muon", "model.block_size": 8}))
    assert adamw.peak == 4 * adamw.weights + max(adamw.activations, 5 * adamw.weights)
    hidden = 12 * 64**2 * cfg.model.n_layer
    assert muon.optimizer == 2 * muon.weights - 4 * hidden
    assert muon.peak == 2 * muon.weights + muon.optimizer + 5 * muon.weights
    assert muon.activations < 5 * muon.weights


def test_evaluations_and_checkpoints_are_counted_as_the_loop_has_them(tiny, tmp_path):
    cfg = tiny.with_values({"eval.every": 4, "save.every": 3, "train.max_steps": 10})
    run = train_new(cfg.with_values({"save.keep": 100}), base="tiny", root=tmp_path / "runs").run
    saved = {int(path.name[5:]) for path in run.checkpoints.glob("step-*")}
    assert {0, 3, 6, 9, 10} <= saved <= {0, 3, 4, 6, 8, 9, 10}


@pytest.mark.parametrize(("looks", "saves"), [(1, 1), (2, 3), (4, 6), (5, 5), (7, 50)])
def test_evaluations_and_checkpoints_are_counted_without_listing_them(tiny, looks, saves):
    cfg = tiny.with_values({"eval.every": looks, "save.every": saves})
    for updates in range(1, 60):
        evaluated = {*range(looks, updates, looks), updates}
        assert count_evaluations(cfg, updates) == len(evaluated)
        assert count_saves(cfg, updates) == len({0, *range(saves, updates, saves)} | evaluated)


def test_the_time_of_a_run_is_that_of_its_updates_evaluations_and_checkpoints(tiny):
    cfg = tiny.with_values({"eval.every": 4, "save.every": 3, "train.max_steps": 10})
    assert run_length(cfg, Times(update=1.0, evaluation=10.0, save=100.0)) == (10, 10 * 1 + 3 * 10 + 6 * 100)


def test_where_the_clock_ends_a_run_its_updates_follow_from_the_time_of_one(tiny):
    cfg = tiny.with_values({"eval.every": 10, "save.every": 5, "train.max_steps": None, "train.max_minutes": 1.0})
    times = Times(update=0.1, evaluation=0.6, save=0.2)  # 0.1 + 0.06 + 0.04 seconds an update
    assert run_length(cfg, times) == (300, 60)


def test_numbers_are_shown_short():
    assert [size(n) for n in (1500, 43 * 2**20, 3 * 2**30)] == ["1.5 KiB", "43 MiB", "3.0 GiB"]
    assert [amount(x) for x in (0.0312, 4.08, 9.97, 812.3)] == ["0.031", "4.1", "10", "812"]

"""Epochs by hand: windows are those that fit into a text side by side."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptlite.compute.choice import Choice
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.sampler import windows_per_epoch
from gptlite.planning.choose_training import (
    choose_eval_every,
    choose_max_steps,
    count_epochs,
    say_epochs,
    with_max_steps,
)


def asked(epochs: float | None, batch_size: int = 10, block_size: int = 8) -> RunConfig:
    values = {"train.epochs": epochs, "train.batch_size": batch_size, "model.block_size": block_size}
    return RunConfig().with_values(values)


@pytest.mark.parametrize(
    ("epochs", "steps"),
    [
        (1, 10),
        (2, 20),
        (0.5, 5),
        (0.51, 6),
        (1e-9, 1),
        (0.1, 1),
        (0.3, 3),
        (0.7, 7),
        (1.01, 11),
        (1.1, 11),
        (1_000_000, 10**7),
    ],
)
def test_epochs_of_a_hundred_windows_fill_batches_of_ten(epochs, steps):
    assert choose_max_steps(asked(epochs), 101 * 8).value == steps


@given(st.decimals("0.001", "1000", places=3), st.integers(2, 10**12), st.integers(1, 4096), st.integers(1, 4096))
def test_the_steps_are_the_fewest_that_train_on_so_many_windows(epochs, n_tokens, block_size, batch_size):
    block_size = min(block_size, n_tokens - 1)
    steps = choose_max_steps(asked(float(epochs), batch_size, block_size), n_tokens).value
    wanted = Fraction(epochs) * windows_per_epoch(n_tokens, block_size)
    assert (steps - 1) * batch_size < wanted <= steps * batch_size


def test_the_reason_names_epochs_and_windows():
    assert choose_max_steps(asked(1), 101 * 8) == Choice(10, "1 epoch of 100 windows")
    assert choose_max_steps(asked(2.5), 9) == Choice(1, "2.5 epochs of 1 window")
    given_steps = RunConfig().with_values({"train.max_steps": 7})
    assert choose_max_steps(given_steps, 1000) == Choice(7, "given")


def test_the_steps_replace_the_epochs():
    cfg = with_max_steps(asked(2), 101 * 8)
    assert (cfg.train.max_steps, cfg.train.epochs, cfg.train.updates) == (20, None, 20)


def test_epochs_are_windows_trained_on_over_those_of_the_text():
    found = [count_epochs(n_windows * 8, 101 * 8, block_size=8) for n_windows in (250, 100)]
    assert (found, list(map(say_epochs, found))) == ([2.5, 1.0], ["2.5 epochs", "1 epoch"])


@given(st.integers(1, 5000), st.integers(1, 3000), st.integers(1, 64))
def test_auto_evaluates_eight_times_and_once_in_two_epochs(updates, windows, batch_size):
    values = {"train.max_steps": updates, "train.batch_size": batch_size, "model.block_size": 8}
    every = choose_eval_every(RunConfig().with_values(values), windows * 8 + 1).value
    evaluated = {step for step in range(1, updates + 1) if step % every == 0} | {updates}
    assert len(evaluated) >= min(8, updates)
    assert every == 1 or every * batch_size <= 2 * windows


def test_a_written_number_of_updates_between_evaluations_is_kept():
    cfg = RunConfig().with_values({"train.max_steps": 100, "eval.every": 77})
    assert choose_eval_every(cfg, 10**6) == Choice(77, "given")

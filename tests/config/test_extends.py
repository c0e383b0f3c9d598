"""`extends: NAME` in a config file: one level, a file beside it or a shipped config."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlite.config.loading import dump_config, load_config, parse_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """base.yaml, mine.yaml that extends it, and an empty working folder beside them."""
    (tmp_path / "base.yaml").write_text("model: {n_layer: 2, n_head: 2}\ntrain:\n  max_steps: 7\n  lr: 0.1\n")
    (tmp_path / "mine.yaml").write_text("extends: base\n\ntrain: {lr: 0.2}\n")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def load(text, *overrides, name="new.yaml"):
    path = Path("..", name)
    path.write_text(text)
    return load_config(path, overrides)


def test_values_of_a_file_replace_those_that_it_extends_and_overrides_both():
    values = {"model.n_layer": 2, "model.n_head": 2, "train.max_steps": 7, "train.lr": 0.2}
    extended = load_config(Path("../mine.yaml"))
    assert extended.given() == values
    assert extended == RunConfig().with_values(values)
    assert load_config(Path("../mine.yaml"), ["train.lr=0.3"]).train.lr == 0.3
    assert "extends" not in dump_config(extended)


@pytest.mark.parametrize("name", ["base", "base.yaml", "'base'"])
def test_a_file_beside_it_is_extended_with_or_without_the_suffix(name):
    assert load(f"extends: {name}\n").train.max_steps == 7


def test_a_shipped_config_is_extended_unless_a_file_beside_has_its_name():
    assert load("extends: small\n").train.max_steps == 1500
    Path("../small.yaml").write_text("train: {max_steps: 3}\n")
    assert load("extends: small\n").train.max_steps == 3


def test_a_config_may_have_the_name_of_the_shipped_one_that_it_extends():
    cfg = load("extends: small\ntrain: {max_steps: 5}\n", name="small.yaml")
    assert (cfg.train.max_steps, cfg.model.n_embd) == (5, 96)


def test_another_length_replaces_that_of_the_extended_file():
    cfg = load("extends: base\ntrain: {epochs: 2}\n")
    assert (cfg.train.epochs, cfg.train.max_steps) == (2, None)
    with pytest.raises(ConfigError, match=r"new\.yaml:2: train\.max_steps is 9 and epochs is 2"):
        load("extends: base\ntrain: {epochs: 2, max_steps: 9}\n")
    Path("../base.yaml").write_text("train: {max_steps: 7, epochs: null}\n")
    assert load("extends: base\ntrain: {max_steps: 9}\n").given() == {"train.max_steps": 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("log: {every: 3}\nextends: bas", "new.yaml:2: extends is bas, but no file beside this one and no shipped"),
        ("extends: bas", "Did you mean base.yaml?"),
        ("extends: new", "new.yaml:1: extends is new, but no file beside this one and no shipped config has this"),
        ("extends: mine", "extends is mine, but that file extends base itself. Extend "),
        ("extends: lesson-one-head", "Extend lesson-base, and set the keys of lesson-one-head.yaml here."),
        ("extends: 3", "new.yaml:1: extends is 3, but no file beside this one"),
        ("extends: [base]", "extends is [base], but no file"),
        ("extends:", "extends is null, but no file"),
        ("extends: ../other/base", "extends is ../other/base, but no file"),
        ("extends: base\nextends: small", "new.yaml:2: extends was given before, in line 1. Keep one of them."),
    ],
)
def test_what_cannot_be_extended_is_refused_in_one_line_that_names_the_file(text, message):
    with pytest.raises(ConfigError) as refused:
        load(text)
    (problem,) = refused.value.problems
    assert message in str(problem)
    assert str(problem).startswith("../new.yaml:")


def test_problems_of_both_files_come_at_once_each_with_its_place():
    Path("../base.yaml").write_text("model:\n  n_layers: 2\n")
    with pytest.raises(ConfigError) as refused:
        load("extends: base\nmodel:\n  n_heads: 2\n", "model.n_embd=x")
    places = [str(problem).partition(": ")[0] for problem in refused.value.problems]
    assert places == ["../base.yaml:2", "../new.yaml:3", "model.n_embd is x, but it must be a whole number >= 1."]


def test_a_rule_that_both_files_break_has_the_place_of_the_file_that_extends():
    with pytest.raises(ConfigError, match=r"^\.\./new\.yaml:3: model\.n_embd is 15, which is not a multiple of n_head"):
        load("extends: base\nmodel:\n  n_embd: 15\n")


def test_the_text_of_a_config_extends_what_lies_beside_its_place():
    assert parse_config("extends: base", "../any.yaml") == load_config(Path("../base.yaml"))

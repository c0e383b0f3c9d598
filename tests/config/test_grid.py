"""A grid of configs: which points there are, what they are called, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptlite.config.grid import load_points, names_of, points, read_axes
from gptlite.config.loading import load_config
from gptlite.config.yaml import read_value
from gptlite.errors import ConfigError
from gptlite.runs.run import check_name


def test_every_combination_is_a_point_and_the_last_key_changes_fastest():
    axes = read_axes(["train.lr=1e-3,3e-3", "tokenizer.kind=char,bpe"])
    assert [(point.name, tuple(point.values.values())) for point in points(axes, "small-sweep")] == [
        ("small-sweep-01-lr=0.001-kind=char", (0.001, "char")),
        ("small-sweep-02-lr=0.001-kind=bpe", (0.001, "bpe")),
        ("small-sweep-03-lr=0.003-kind=char", (0.003, "char")),
        ("small-sweep-04-lr=0.003-kind=bpe", (0.003, "bpe")),
    ]


def test_keys_of_one_name_keep_their_section():
    axes = read_axes(["eval.every=5,10", "save.every=5", "model.n_layer=1"])
    assert [point.name for point in points(axes, "s")] == [
        "s-01-eval.every=5-save.every=5-n_layer=1",
        "s-02-eval.every=10-save.every=5-n_layer=1",
    ]


def test_names_sort_as_the_points_do_however_many_there_are():
    axes = {"run.seed": list(range(11)), "train.warmup_steps": list(range(10))}
    names = [point.name for point in points(axes, "s")]
    assert names == sorted(names)
    assert len(set(names)) == 110
    assert names[0] == "s-001-seed=0-warmup_steps=0"


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("1e-3,0.01,auto", [0.001, 0.01, "auto"]),
        ("char, bpe", ["char", "bpe"]),
        ("null,300", [None, 300]),
        ("true,false,auto", [True, False, "auto"]),
        ("'a, b',c", ["a, b", "c"]),
        ('"a \\" b, c",d', ['a " b, c', "d"]),
        ("[a.txt, b.txt],c.txt", [["a.txt", "b.txt"], "c.txt"]),
        ("['x,]', y],z", [["x,]", "y"], "z"]),
        ("don't,a b", ["don't", "a b"]),
        ("'',x", ["", "x"]),
    ],
)
def test_the_values_are_the_items_of_a_yaml_list(typed, values):
    assert read_axes([f"eval.prompt={typed}"])["eval.prompt"] == read_value(f"[{typed}]") == values


@pytest.mark.parametrize("typed", ["'a", "[a,b", "'a'b,c", "a,[b", "[a]b", "a]", "a # b", "*.txt,b"])
def test_values_that_are_not_yaml_are_refused(typed):
    with pytest.raises(ConfigError, match=r"^eval\.prompt cannot be set to the values "):
        read_axes([f"eval.prompt={typed}"])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["train.lr"], "train.lr is not of the form section.key=value,value, such as train.lr=1e-3,3e-3."),
        (["train.lrr=1,2"], "train.lrr is not a key of the config. Did you mean train.lr?"),
        (["train.lr=1,,2"], "train.lr cannot be set to the values 1,,2: a bracket is never closed, or a comma"),
        (["train.lr="], "train.lr has no values."),
        (["train.lr=1e-3,1,0.001"], "train.lr has the value 0.001 twice."),
        (["train.lr=1", "train.lr=2"], "train.lr is set more than once."),
        (["run.dir=a,b"], "run.dir cannot be swept, because all runs of a sweep are in one folder."),
        (["model.n_layer=1"], "model.n_layer is set more than once."),
    ],
)
def test_values_that_do_not_make_a_grid_are_refused(texts, message):
    with pytest.raises(ConfigError) as refused:
        read_axes(texts, taken=["model.n_layer"])
    assert [str(problem).startswith(message) for problem in refused.value.problems] == [True]


def test_a_problem_of_several_points_is_named_once(tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text("model: {n_layer: none}\n")
    axes = read_axes(["train.lr=1,x", "tokenizer.kind=char,bpe", "tokenizer.vocab_size=null,300"])
    with pytest.raises(ConfigError) as refused:
        load_points(lambda own: load_config(path, own), points(axes, "s"), "--sweep")
    assert [str(problem) for problem in refused.value.problems] == [
        f"{path}:1: model.n_layer is none, but it must be a whole number >= 1.",
        "--sweep: tokenizer.vocab_size is 300, but kind is char, which determines its own size. Use "
        "tokenizer.vocab_size=null or tokenizer.kind=bpe.",
        "--sweep: train.lr is x, but it must be auto or a number > 0.",
    ]


def test_a_point_is_the_config_that_set_makes_of_its_settings(tmp_path: Path):
    path = tmp_path / "c.yaml"
    path.write_text("train: {max_steps: 7}\n")
    words = ["train.max_minutes=0.5,3e-5", "eval.prompt='a, b',\"on\"", "data.source=[x, y],z"]
    grid = points(read_axes(words), "s")
    configs = load_points(lambda own: load_config(path, ["model.n_layer=2", *own]), grid)
    assert configs == [load_config(path, ["model.n_layer=2", *point.settings]) for point in grid]
    assert len({repr(cfg) for cfg in configs}) == 8


@pytest.mark.parametrize("value", ["a/b c.txt/", "..", "x.tmp-y", "x.tmp", "ä" * 300, "\n\x00", "-", "😀", "latest"])
def test_names_are_names_of_runs_whatever_the_values(value):
    grid = points({"eval.prompt": [value], "data.encoding": ["ü" * 80, 1]}, "s" * 150)
    for point in grid:
        check_name(point.name, point.name)


def test_the_runs_of_a_sweep_are_told_from_those_of_others():
    grid = points(read_axes(["train.beta1=0.8", "model.n_layer=2"]), "a.b")
    assert all(names_of("a.b").fullmatch(point.name) for point in grid)
    others = ["a.b", "a.b-2", "a.b-2-copy", "axb-01-beta1=0.8", "a.b-1-01-beta1=0.8", "a.b-01-02-beta1=0.8"]
    assert [name for name in others if names_of("a.b").fullmatch(name)] == []

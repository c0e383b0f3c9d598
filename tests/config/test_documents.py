import json
from pathlib import Path

import pytest

from gptlite.config.documents import commented, json_schema, read_heading, rewrite_configs, schema_text
from gptlite.config.loading import load_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import read

FOLDER = Path(__file__).parents[2] / "configs"
SHIPPED = sorted(FOLDER.glob("*.yaml"))
AGAIN = "it follows from the schema; write it again with `python -m gptlite.config.documents`"


def test_there_are_shipped_configs():
    assert {"small.yaml", "char.yaml", "tiny.yaml"} <= {path.name for path in SHIPPED}


def test_the_schema_file_is_the_schema():
    assert (FOLDER / "schema.json").read_text("utf-8") == schema_text(), f"configs/schema.json: {AGAIN}"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_config_loads_names_the_schema_and_has_every_key(path):
    text = path.read_text("utf-8")
    assert load_config(path)
    assert text.startswith("# yaml-language-server: $schema=schema.json\n")
    every_key = {section: set(keys) for section, keys in RunConfig().model_dump().items()}
    assert {section: set(keys) for section, keys in read(text).value.items()} == every_key


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_comments_of_a_shipped_config_say_what_the_schema_says(path):
    text = path.read_text("utf-8")
    assert text == commented(load_config(path), read_heading(text)), f"{path.name}: {AGAIN}"


def test_the_schema_says_range_default_and_meaning():
    schema = json.loads(json.dumps(json_schema()))
    lr = schema["properties"]["train"]["properties"]["lr"]
    assert lr == {
        "anyOf": [{"const": "auto", "type": "string"}, {"exclusiveMinimum": 0, "type": "number"}],
        "default": "auto",
        "description": "peak learning rate; auto depends on optimizer, n_embd and init",
    }
    device = schema["properties"]["run"]["properties"]["device"]
    assert device["enum"] == ["auto", "cpu", "cuda", "mps"]
    assert schema["additionalProperties"] is schema["properties"]["train"]["additionalProperties"] is False


def test_the_schema_covers_every_key_and_needs_no_other_document():
    schema = json_schema()
    keys = {name: set(section["properties"]) for name, section in schema["properties"].items()}
    assert keys == {section: set(keys) for section, keys in RunConfig().model_dump().items()}
    assert "$ref" not in json.dumps(schema)


def test_small_and_char_train_on_as_much_text_and_differ_in_what_goes_with_the_tokenizer():
    small, char = (load_config(FOLDER / f"{name}.yaml") for name in ("small", "char"))
    assert (small.tokenizer.kind, char.tokenizer.kind) == ("bpe", "char")
    values = {"tokenizer.kind": "char", "tokenizer.vocab_size": None, "model.init": "zero"}
    batches = {"train.batch_size": 32, "eval.batch_size": 32}
    assert small.with_values({**values, **batches}) == char
    # A token of small.yaml stands for 3.6 characters of its text.
    characters = [cfg.train.batch_size * cfg.model.block_size * length for cfg, length in ((small, 3.6), (char, 1))]
    assert characters[0] == pytest.approx(characters[1], rel=0.15)


@pytest.mark.parametrize(
    ("lesson", "like", "changed"),
    [
        ("one-head", "base", {"model.n_head": 1}),
        ("no-position", "base", {"model.position": "none"}),
        ("sinusoidal", "base", {"model.position": "sinusoidal"}),
        ("unscaled", "base", {"model.scale_attention": False}),
        ("post-norm", "base", {"model.norm": "post"}),
        ("no-residual", "base", {"model.variant": "no_residual", "model.init": "gpt2"}),
        ("no-feed-forward", "base", {"model.variant": "no_feed_forward"}),
        ("no-layer-norm", "base", {"model.variant": "no_norm"}),
        ("no-mask", "base", {"model.variant": "no_mask"}),
        ("sinusoidal-full-size", "sinusoidal", {"model.scale_embeddings": True}),
        (
            "notes",
            "base",
            {
                "model.bias": ["proj", "mlp", "norm"],
                "model.dropout": 0.1,
                "model.embedding_dropout": 0.0,
                "model.tie_weights": False,
                "model.init": "torch",
            },
        ),
        (
            "deep",
            "base",
            {
                "model.n_layer": 12,
                "train.optimizer": "adamw",
                "train.lr": "auto",
                "train.adamw_lr": "auto",
                "train.warmup_steps": 0,
                "train.max_steps": 400,
            },
        ),
        (
            "wide-head",
            "base",
            {
                "model.n_head": 1,
                "model.n_embd": 128,
                "model.init": "torch",
                "model.tie_weights": False,
                "log.attention": True,
            },
        ),
        ("wide-head-unscaled", "wide-head", {"model.scale_attention": False}),
        ("deep-torch", "deep", {"model.init": "torch", "model.tie_weights": False}),
        ("deep-torch-post-norm", "deep-torch", {"model.norm": "post"}),
        ("deep-post-norm", "deep", {"model.norm": "post"}),
        ("deep-post-norm-warmup", "deep-post-norm", {"train.warmup_steps": 200}),
    ],
)
def test_a_lesson_changes_what_it_says_and_nothing_else(lesson, like, changed):
    cfg, other = (load_config(FOLDER / f"lesson-{name}.yaml") for name in (lesson, like))
    assert cfg == other.with_values(changed) != other


def test_every_config_stands_in_the_readme_beside_them():
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [path.name for path in SHIPPED if f"`{path.stem}" not in readme] == []


def test_writing_again_keeps_heading_and_values_and_adds_the_rest(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_text("# my heading\n# goes on\ntrain: {lr: 1e-5}  # not kept\n")
    rewrite_configs(tmp_path)
    text = path.read_text()
    assert text.startswith("# my heading\n# goes on\n\n# ")
    assert "not kept" not in text
    meaning = "peak learning rate; auto depends on optimizer, n_embd and init (auto or a number > 0; default auto)"
    assert f"  # {meaning}\n  lr: 1.0e-05\n" in text
    assert load_config(path) == RunConfig().with_values({"train.lr": 1e-5})
    assert json.loads((tmp_path / "schema.json").read_text()) == json_schema()
    rewrite_configs(tmp_path)
    assert path.read_text() == text

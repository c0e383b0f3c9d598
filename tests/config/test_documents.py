import json
import shutil
from pathlib import Path

import pytest

from gptlite.config.documents import commented, json_schema, read_heading, rewrite_configs
from gptlite.config.loading import load_config
from gptlite.config.schema import RunConfig
from gptlite.config.yaml import read

FOLDER = Path(__file__).parents[2] / "configs"
SHIPPED = sorted(FOLDER.glob("*.yaml"))
COMPLETE = {"small", "lesson-base"}


def values_of(path):
    """The values of a file by "section.key", and the name of the file that it extends."""
    sections = read(path.read_text("utf-8")).value
    extends = sections.pop("extends", None)
    return {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}, extends


def flat(cfg):
    return {f"{section}.{key}": value for section, keys in cfg.model_dump().items() for key, value in keys.items()}


def test_the_files_that_name_every_key_are_what_the_generator_writes(tmp_path):
    names = ("schema.json", "small.yaml", "lesson-base.yaml")
    for name in names:
        shutil.copy(FOLDER / name, tmp_path)
    rewrite_configs(tmp_path)
    again = "it follows from the schema; write it again with `python -m gptlite.config.documents`"
    for name in names:
        assert (FOLDER / name).read_text("utf-8") == (tmp_path / name).read_text("utf-8"), f"configs/{name}: {again}"
    for name in names[1:]:
        assert values_of(FOLDER / name)[0].keys() == flat(RunConfig()).keys()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_config_names_the_schema_and_only_what_differs_from_the_one_it_extends(path):
    assert path.read_text("utf-8").startswith("# yaml-language-server: $schema=schema.json\n# ")
    values, extends = values_of(path)
    is_lesson = path.name.startswith("lesson-")
    assert extends == (None if path.stem in COMPLETE else "lesson-base" if is_lesson else "small")
    if extends is not None:
        cfg, base = flat(load_config(path)), flat(load_config(FOLDER / f"{extends}.yaml"))
        assert {key: value for key, value in cfg.items() if value != base[key]} == values != {}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_config_is_printed_whole_with_a_comment_on_every_key(path, tmp_path):
    printed = tmp_path / "printed.yaml"
    text = commented(load_config(path), read_heading(path.read_text("utf-8")))
    printed.write_text(text, "utf-8")
    assert values_of(printed) == (flat(load_config(path)), None)
    assert text.replace("\n  #  ", "").count("; default ") == len(flat(RunConfig()))
    assert path.stem != "small" or text == path.read_text("utf-8")


def test_the_schema_covers_every_key_and_needs_no_other_document():
    schema = json_schema()
    sections = {name: section for name, section in schema["properties"].items() if name != "extends"}
    keys = {name: set(section["properties"]) for name, section in sections.items()}
    assert schema["properties"]["extends"]["type"] == "string"
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


def test_every_config_stands_in_the_readme_beside_them():
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [path.name for path in SHIPPED if f"`{path.stem}" not in readme] == []

"""The documents: links, paths and names in them exist, limits are the tested ones, every module says what it holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "gptlite"
README, ARCHITECTURE = REPOSITORY / "README.md", REPOSITORY / "ARCHITECTURE.md"
TEXTBOOK, TENSORBOARD = REPOSITORY / "docs/textbook.md", REPOSITORY / "docs/tensorboard.md"
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), REPOSITORY / "configs/README.md", *REPOSITORY.glob("docs/*.md")])
NAMED = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]  # a changelog speaks of the past, too
MOST_README_LINES = 130


def test_every_module_says_what_it_holds() -> None:
    silent = [
        path.as_posix() for path in PACKAGE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []


def test_the_first_screens_stay_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= MOST_README_LINES


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", path.read_text("utf-8"))
    broken = [link for link in links if not link.startswith("http") and not (path.parent / link).exists()]
    assert broken == []


def paths_in(text: str) -> Iterator[str]:
    """Files and folders of the repository that a text names; a * stands for anything."""
    yield from re.findall(r"(?<![\w./-])(?:gptlite|tests|configs|scripts|docs)/[\w*/.-]*[\w*]", text)
    yield from re.findall(r"`([\w*/-]+\.py)`", text)


@pytest.mark.parametrize("path", NAMED, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_paths_exist(path: Path) -> None:
    places = (REPOSITORY, PACKAGE)
    missing = {
        name
        for name in paths_in(path.read_text("utf-8"))
        if not any(found for top in places for found in top.glob(name))
    }
    assert missing == set()


@cache
def names_in(path: Path) -> frozenset[str]:
    """The functions and classes of a module with their methods: f, A, A.method."""
    tree = ast.parse(path.read_text("utf-8"))
    functions = (ast.FunctionDef, ast.ClassDef)
    tops = [node for node in tree.body if isinstance(node, functions)]
    inner = {f"{top.name}.{node.name}" for top in tops for node in top.body if isinstance(node, functions)}
    return frozenset({top.name for top in tops} | inner)


def exists_in_code(name: str) -> bool:
    """Whether a dotted name is a package, a module, or something that a module defines."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        place = PACKAGE.joinpath(*parts[:i])
        if place.is_dir():
            return i == len(parts)
        if place.with_suffix(".py").is_file():
            return i == len(parts) or ".".join(parts[i:]) in names_in(place.with_suffix(".py"))
    return False


def keys() -> set[str]:
    from gptlite.config.schema import RunConfig

    return {f"{section}.{key}" for section, values in RunConfig().model_dump().items() for key in values}


def names_used(path: Path) -> set[str]:
    """The dotted names of code that a document uses, in backticks or on the arrows of the data flow."""
    text = path.read_text("utf-8")
    tops = {each.stem for each in PACKAGE.iterdir() if each.suffix in ("", ".py")}
    dotted = re.findall(r"`([A-Za-z_]+(?:\.\w+)+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    dotted += re.findall(r"──([a-z_]\w*(?:\.\w+)*)", text)
    return {name for name in dotted if name.partition(".")[0] in tops and not name.endswith((".py", ".md"))} - keys()


@pytest.mark.parametrize("path", [ARCHITECTURE, TEXTBOOK, REPOSITORY / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_names_of_code_exist(path: Path) -> None:
    assert {name for name in names_used(path) if not exists_in_code(name)} == set()


def test_missing_names_are_seen() -> None:
    assert exists_in_code("model.gpt.GPT.forward")
    assert exists_in_code("cli.train.command")
    assert not exists_in_code("model.gpt.GPT.backwards")
    assert not exists_in_code("model.gtp")
    assert list(paths_in("in gptlite/data/x.py, or `files.py`; not runs/a or abc.py")) == [
        "gptlite/data/x.py",
        "files.py",
    ]


def test_documented_limits_are_the_tested_ones() -> None:
    source = (REPOSITORY / "tests/test_layers.py").read_text("utf-8")
    limits = re.findall(r"^MAX_(?:FILE|FUNCTION)_LINES = (\d+)", source, re.MULTILINE)
    said = " ".join((REPOSITORY / "CONTRIBUTING.md").read_text("utf-8").split())
    assert f"tests refuse files of more than {limits[0]} lines and functions of more than {limits[1]}" in said


def concepts() -> list[dict[str, str]]:
    """The rows of the textbook's tables of concepts, by the heads of their columns."""
    columns = ["concept", "equation", "function", "key", "lesson", "picture"]
    lines = TEXTBOOK.read_text("utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    heads = (columns, ["---"] * len(columns))
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns) and row not in heads]


def in_backticks(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@cache
def values_of_lessons() -> dict[str, dict[str, object]]:
    """By the name of each lesson its values by "section.key"."""
    from gptlite.config.loading import load_config

    configs = {path.stem: load_config(path).model_dump() for path in (REPOSITORY / "configs").glob("lesson-*.yaml")}
    return {
        name: {f"{section}.{key}": value for section, values in cfg.items() for key, value in values.items()}
        for name, cfg in configs.items()
    }


@pytest.mark.parametrize("row", concepts(), ids=lambda row: row["concept"])
def test_what_a_concept_names_exists(row: dict[str, str]) -> None:
    functions = [name for name in in_backticks(row["function"]) if not name.startswith("nn.")]
    assert functions
    assert [name for name in functions if not exists_in_code(name)] == []
    named = [name.partition(": ")[0] for name in in_backticks(row["key"])]
    assert set(named) <= keys() | {"--context"}
    assert named or row["key"] == "—"
    lessons = in_backticks(row["lesson"])
    assert set(lessons) <= values_of_lessons().keys()
    assert lessons or row["lesson"] == "—"
    tags = [name for name in in_backticks(row["picture"]) if " " not in name and not name.startswith("--")]
    assert set(tags) <= set(in_backticks(TENSORBOARD.read_text("utf-8")))


@pytest.mark.parametrize("row", concepts(), ids=lambda row: row["concept"])
def test_a_lesson_has_the_value_that_it_is_named_for(row: dict[str, str]) -> None:
    lessons = in_backticks(row["lesson"])
    given = [name.partition(": ") for name in in_backticks(row["key"]) if ": " in name]
    for key, _, value in given if lessons else []:
        assert yaml.safe_load(value) in [values_of_lessons()[name][key] for name in lessons], key


def test_every_lesson_teaches_a_concept() -> None:
    taught = {name for row in concepts() for name in in_backticks(row["lesson"])}
    assert taught == values_of_lessons().keys()

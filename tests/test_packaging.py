"""The wheel holds the package, its configs and data-set cards and nothing else, and works in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JUNK = (
    *("data/prepared/book-0123/train-00000.bin", "data/downloads/book.txt", "data/notes.txt", "configs/mine.txt"),
    *("runs/small/config.yaml", "gptlite/model/__pycache__/gpt.cpython-311.pyc", ".venv/pyvenv.cfg"),
)

FIND = "from gptlite.config.loading import find_config; print(find_config('small.yaml'))"


def run(*command: str | Path, cwd: Path, import_from: Path | None = None) -> str:
    """What the command prints, both streams together; it must succeed."""
    env = os.environ | {"PYTHONPATH": str(import_from or "")}
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def tree(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with the leavings of work in it."""
    tree = tmp_path_factory.mktemp("a tree")
    for name in ("gptlite", "configs", "data"):
        ignored = shutil.ignore_patterns("__pycache__", "prepared", "downloads")
        shutil.copytree(repository / name, tree / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(repository / name, tree / name)
    for name in JUNK:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("junk", encoding="utf-8")
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=tree)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed in it; everything that it needs comes from the environment of the tests."""
    site = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel, cwd=site)
    return site


def test_the_wheel_holds_the_package_with_its_configs_and_cards_and_nothing_else(tree: Path, wheel: Path) -> None:
    modules = {p.relative_to(tree).as_posix() for p in (tree / "gptlite").rglob("*") if p.is_file()} - set(JUNK)
    configs = {f"gptlite/builtin/configs/{p.name}" for p in (tree / "configs").iterdir() if p.name != "mine.txt"}
    cards = {f"gptlite/builtin/data/{p.name}" for p in (tree / "data").glob("*.yaml")}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert "gptlite/builtin/configs/small.yaml" in held
    assert held == modules | configs | cards


def test_an_installed_gptlite_prints_its_configs(installed: Path, tmp_path: Path, repository: Path) -> None:
    printed = run(installed / "bin" / "gptlite", "config", "small", cwd=tmp_path, import_from=installed)
    assert printed == (repository / "configs" / "small.yaml").read_text(encoding="utf-8")
    lesson = run(installed / "bin" / "gptlite", "config", "lesson-one-head", cwd=tmp_path, import_from=installed)
    assert {"  n_head: 1", "  n_layer: 4"} <= set(lesson.splitlines())  # its own, and that of the config it extends


def test_an_installed_gptlite_trains_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("to be or not to be\n" * 500, encoding="utf-8")
    settings = ["model.n_layer=1", "model.block_size=16", "train.max_steps=1", "train.warmup_steps=0"]
    command = [installed / "bin" / "gptlite", "train", "--config", "small.yaml", "--data", "book.txt"]
    command += [word for setting in settings for word in ("--set", setting)]
    printed = run(*command, cwd=tmp_path, import_from=installed)
    assert str(installed / "gptlite" / "builtin" / "configs" / "small.yaml") in printed
    assert (tmp_path / "runs" / "small" / "config.yaml").is_file()


def test_an_editable_install_points_at_the_tree_and_reads_its_top_level_folders(tree: Path, tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_editable; print(build_editable(sys.argv[1]))"
    name = run(sys.executable, "-c", build, tmp_path, cwd=tree).split()[-1]
    with zipfile.ZipFile(tmp_path / name) as archive:
        (pointer,) = (archive.read(n).decode() for n in archive.namelist() if n.endswith(".pth"))
    assert pointer.strip() == str(tree)
    found = run(sys.executable, "-c", FIND, cwd=tmp_path, import_from=tree)
    assert found.strip() == str(tree / "configs" / "small.yaml")

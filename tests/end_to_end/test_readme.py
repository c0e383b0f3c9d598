"""What the README says is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from gptlite.cli.app import app
from gptlite.config.finding import builtin_folder, find_config
from gptlite.config.loading import dump_config, load_config
from gptlite.errors import ConfigError


@pytest.fixture(scope="session")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text(encoding="utf-8")


def test_every_file_it_links_to_exists(readme, repository):
    links = re.findall(r"\]\(([^)#]+)\)", readme)
    assert links
    assert [link for link in links if not link.startswith("http") and not (repository / link).exists()] == []


def test_the_scripts_it_names_can_be_run(readme, repository):
    scripts = set(re.findall(r"scripts/\w+", readme))
    assert {"scripts/quickstart", "scripts/test"} <= scripts
    assert all((repository / script).stat().st_mode & 0o111 for script in scripts)


def test_every_command_and_option_it_shows_exists(readme):
    group = typer.main.get_command(app)
    inner = {f"runs {name}": command for name, command in group.commands["runs"].commands.items()}
    known = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in {**group.commands, "runs": inner.pop("runs list"), **inner}.items()
    }
    shown = re.findall(r"gptlite (prepare|train|sample|eval|config|runs(?: diff| plot| rm)?)\b([^`\n#]*)", readme)
    assert {command for command, _ in shown} == set(known)
    for command, rest in shown:
        options = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest.replace("--json", "--json ")))
        assert options <= known[command], (command, options - known[command])


def test_the_configs_it_names_are_built_in_and_differ(readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no other config is to be found
    names = re.search(r"built-in name \(([^)]*)\)", readme)[1].replace("`", "").split(", ")
    found = {name: find_config(name) for name in names}
    assert {path.parent for path in found.values()} == {builtin_folder("configs")}
    assert len({dump_config(load_config(path)) for path in found.values()}) == len(names) > 1


def test_the_keys_it_sets_change_the_default_config(readme):
    default = load_config(find_config("small"))
    overrides = re.findall(r"--set (\S+=\S+?)[`\s]", readme)
    assert overrides
    assert [override for override in overrides if load_config(find_config("small"), [override]) == default] == []


def test_the_errors_it_shows_are_the_ones_that_appear(readme, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [""] * 12
    lines[5], lines[6], lines[10], lines[11] = "train:", "  learning_rate: 0.001", "model:", "  n_embd: 130"
    Path("my.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError) as refused:
        load_config(Path("my.yaml"))
    shown = re.findall(r"^error: (my\.yaml.*)$", readme, re.MULTILINE)
    assert list(refused.value.problems) == shown

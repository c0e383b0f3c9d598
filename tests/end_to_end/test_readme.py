"""What README.md and docs/ show is true: commands run, options and configs exist, errors read as printed."""

from __future__ import annotations

import random
import re
import shlex
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from gptlite.cli.app import app, run
from gptlite.config.loading import dump_config, find_config, load_config
from gptlite.errors import ConfigError

REPOSITORY = Path(__file__).parents[2]
README, CONFIGS = REPOSITORY / "README.md", REPOSITORY / "docs/configs.md"
DOCUMENTS = [README, *sorted(REPOSITORY.glob("docs/*.md"))]

# So that a command that trains takes a moment. What comes last counts; the text of a config may be large.
SMALL = (
    *("model.n_layer=1", "model.n_head=2", "model.n_embd=16", "model.block_size=16", "train.batch_size=4"),
    *("train.warmup_steps=0", "eval.every=2", "save.every=2", "log.every=1"),
)
NOT_RUN = {
    "--interactive": "asks",
    "--sweep": "starts processes: tests/cli/test_sweep.py",
    "--nproc": "starts processes: tests/training/test_processes.py",
    "--resume RUN": "a pattern",
    "lesson-one-head": "as lesson-base",
    "lesson one-head": "takes minutes: tests/cli/test_lesson.py",
    "tb/": "no command",
    "--init gpt2": "downloads: tests/interop/test_source.py",
    "--init my-gpt2/": "a folder of another program: tests/interop/test_source.py",
}


def blocks(path: Path, language: str = "") -> list[str]:
    """The fenced blocks of a document."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def commands(path: Path) -> Iterator[str]:
    """The lines of a document's blocks that call gptlite."""
    for block in blocks(path):
        yield from re.findall(r"^(?:\$ )?(gptlite .*)$", block, re.MULTILINE)


COMMANDS = [
    pytest.param(line, id=f"{path.stem}: {line.partition('#')[0].strip()}")
    for path in DOCUMENTS
    for line in commands(path)
    if not any(part in line for part in NOT_RUN)
]


def small_command(line: str) -> list[str]:
    """A command as it is printed; training is cut short."""
    words = shlex.split(line, comments=True)[1:]
    if words[0] != "train":
        return words
    clock = any("minutes" in word for word in words)
    extra = [*SMALL, "train.max_minutes=0.01" if clock else "train.max_steps=4"]
    if "--init" in words:  # the shape is that of the other run
        extra = [value for value in extra if not value.startswith("model.")]
    elif not any(name in line for name in ("kind=char", "char.yaml", "tiny", "lesson", "my.yaml")):
        extra.append("tokenizer.vocab_size=300")
    data = [] if "--data" in words or "--resume" in words or "--continue" in words else ["--data", "book.txt"]
    return [*words, *data, *(word for value in extra for word in ("--set", value))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the texts, the config and the runs that the documents speak of."""
    folder = tmp_path_factory.mktemp("readme")
    rng = random.Random(0)
    words = [*("".join(rng.choices(string.ascii_lowercase, k=4)) for _ in range(50)), "To be or not", "def "]
    text = " ".join(rng.choices(words, k=4000)) + string.printable
    for name in ("book.txt", "a.txt", "diary.txt", "books/c.txt", "notes/a.md", "notes/more/b.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "my.yaml").write_text("data: {source: book.txt}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GPTLITE_THREADS", "1")
        for name in ("char", "bpe", "small", "book", "base"):
            kind = "char" if name == "char" else "bpe"
            line = f"gptlite train --data book.txt --name {name} --set tokenizer.kind={kind} -q"
            assert run(small_command(line)) == 0
    return folder


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_does_what_it_should(line, folder, monkeypatch, capfd):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPTLITE_THREADS", "1")
    # A run may be there already.
    line = re.sub(r"--name (\w+)", lambda name: name[0] + "-again" * Path("runs", name[1]).exists(), line)
    line, _, into = line.partition(" > ")
    words = small_command(line)
    if words[0] not in typer.main.get_command(app).commands:
        pytest.skip(f"gptlite {words[0]} is not there yet")
    with open("a.txt") as typed:
        monkeypatch.setattr("sys.stdin", typed)
        assert run(words) == 0, capfd.readouterr().err
    if into:
        Path(into.split()[0]).write_text(capfd.readouterr().out)


def test_the_python_it_shows_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPTLITE_THREADS", "1")
    shown = [block for path in DOCUMENTS for block in blocks(path, "python") if "transformers" not in block]
    assert shown
    for block in shown:
        exec(block.replace("minutes=3", "minutes=0.01"), {})


def test_the_scripts_it_names_can_be_run():
    scripts = set(re.findall(r"scripts/\w+", README.read_text("utf-8")))
    assert {"scripts/quickstart", "scripts/test"} <= scripts
    assert all((REPOSITORY / script).stat().st_mode & 0o111 for script in scripts)


def test_every_command_is_shown_and_every_option_shown_exists():
    group = typer.main.get_command(app)
    inner = {f"runs {name}": command for name, command in group.commands["runs"].commands.items()}
    known = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in {**group.commands, "runs": inner.pop("runs list"), **inner}.items()
    }
    names = "|".join(sorted(known, key=len, reverse=True))
    text = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)
    shown = re.findall(rf"gptlite ({names})\b([^`\n#]*)", text)
    assert {command for command, _ in shown} == set(known)
    for command, rest in shown:
        options = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", rest))
        assert options <= known[command], (command, options - known[command])


def test_the_configs_it_names_are_built_in_and_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no other config is to be found
    names = re.search(r"shipped name \(([^)]*)\)", CONFIGS.read_text("utf-8"))[1].replace("`", "").split(", ")
    found = {name: find_config(name) for name in names}
    assert {path.parent for path in found.values()} == {REPOSITORY / "configs"}
    assert len({dump_config(load_config(path)) for path in found.values()}) == len(names) > 1


def test_the_keys_it_sets_change_the_default_config():
    small, no_warmup = find_config("small"), "train.warmup_steps=0"
    default = load_config(small, [no_warmup])
    text = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)
    overrides = set(re.findall(r"--set (\S+=\S+?)[`\s]", text)) - {"section.key=value", "train.max_steps=N"}
    assert overrides
    assert [override for override in overrides if load_config(small, [no_warmup, override]) == default] == []


def test_the_errors_it_shows_are_the_ones_that_appear(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [""] * 12
    lines[5], lines[6], lines[10], lines[11] = "train:", "  learning_rate: 0.001", "model:", "  n_embd: 130"
    Path("my.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError) as refused:
        load_config(Path("my.yaml"))
    shown = re.findall(r"^error: (my\.yaml.*)$", CONFIGS.read_text("utf-8"), re.MULTILINE)
    assert [str(problem) for problem in refused.value.problems] == shown

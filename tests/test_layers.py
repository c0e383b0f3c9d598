"""Rules of the code base: which package imports which, who imports torch, who prints, and how long files get."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = sorted(p.relative_to(REPOSITORY).as_posix() for p in (REPOSITORY / "gptlite").rglob("*.py"))

# A file imports from its own package and from those before it.
PACKAGES = (
    *(
        "version",
        "errors",
        "formatting",
        "storage",
        "download",
        "other_programs",
        "seeds",
        "config",
        "compute",
        "model",
        "tokenizers",
        "data",
    ),
    *("loggers", "runs", "planning", "inference", "course", "interop", "training", "views", "cli"),
)
# Parts of a package, each of which imports only those before it.
PARTS = {"data": ("sources", "dataset", "preparing")}
TORCH_PACKAGES = {"compute", "model", "inference", "course", "training", "interop"}
COURSE_USERS = {"course", "views", "cli"}
SCHEDULED_SAMPLING = {"gptlite/training/step.py", "gptlite/training/objective.py"}  # which may use that part of it
TORCH_FILES = {"gptlite/data/dataset/batches.py", "gptlite/runs/checkpoint.py"}
MODEL_IMPORTS = {"config", "seeds", "model"}  # so that the model can be lifted out and read alone
ENTRY_POINTS = {"gptlite/__init__.py", "gptlite/__main__.py"}  # these may import any package

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50
NAMES_WITHOUT_A_PURPOSE = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|$)")


def package_of(path: str) -> str:
    """The package of a file: gptlite/storage/files.py -> files, gptlite/model/gpt.py -> model."""
    return PurePosixPath(path).parts[1].removesuffix(".py")


def may_use_torch(path: str) -> bool:
    return package_of(path) in TORCH_PACKAGES or path in TORCH_FILES


def imports(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported, inside functions too; `from a import b` gives a.b."""
    package = PurePosixPath(path).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            yield from ((node.lineno, ".".join([*start, *filter(None, [node.module]), a.name])) for a in node.names)
        elif isinstance(node, ast.Call) and re.search(r"\b(import_module|__import__)$", ast.unparse(node.func)):
            name = node.args[0] if node.args else None
            plain = isinstance(name, ast.Constant) and not str(name.value).startswith(".")
            yield node.lineno, str(name.value) if plain else "<computed>"


def import_breaches(path: str, tree: ast.AST) -> Iterator[str]:
    package = package_of(path)
    for line, name in imports(path, tree):
        top, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if path in ENTRY_POINTS:
            continue
        if name == "<computed>":
            yield f"{path}:{line}: imports a computed name"
        elif top == "gptlite" and other in PACKAGES and PACKAGES.index(other) > PACKAGES.index(package):
            yield f"{path}:{line}: {package} imports {other}, which comes after it"
        elif package == "model" and top == "gptlite" and other not in MODEL_IMPORTS:
            yield f"{path}:{line}: model imports {other}"
        elif top == "gptlite" and other not in PACKAGES and name != "gptlite.__version__":
            yield f"{path}:{line}: imports {name}, which is no package"
        elif other == "course" and package not in COURSE_USERS and path not in SCHEDULED_SAMPLING:
            yield f"{path}:{line}: {package} imports course"
        elif (top == "torch" or name.startswith("safetensors.torch")) and not may_use_torch(path):
            yield f"{path}:{line}: imports {name}"


def part_breaches(path: str, tree: ast.AST) -> Iterator[str]:
    package = package_of(path)
    order, part = PARTS.get(package, ()), PurePosixPath(path).parent.name
    for line, name in imports(path, tree) if part in order else ():
        names = name.split(".")
        other = names[2] if names[:2] == ["gptlite", package] and len(names) > 2 else ""
        if other in order and order.index(other) > order.index(part):
            yield f"{path}:{line}: {package}.{part} imports {package}.{other}, which comes after it"


def imported_modules(path: str, tree: ast.Module) -> set[str]:
    """The files of gptlite that a file imports, inside functions and for types, too."""
    # `from a import b` may mean the file a/b.py, the package a/b or a name in a.
    stems = [each for _, name in imports(path, tree) for each in (name, name.rpartition(".")[0])]
    candidates = (f"{stem.replace('.', '/')}{end}" for stem in stems for end in (".py", "/__init__.py"))
    return {each for each in candidates if each in FILES and each != path}


def find_cycle(sources: Mapping[str, str]) -> list[str]:
    """The files of an import cycle, if there is one."""
    graph = {path: imported_modules(path, ast.parse(source, path)) for path, source in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def print_breaches(path: str, tree: ast.AST, inside: str = "") -> Iterator[str]:
    if package_of(path) == "cli" or inside == "ConsoleSink":
        return
    for node in ast.iter_child_nodes(tree):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name in {"print", "typer.echo"} or re.fullmatch(r"sys\.std(out|err)\.write", name):
            yield f"{path}:{node.lineno}: {name}"
        yield from print_breaches(path, node, node.name if isinstance(node, ast.ClassDef) else inside)


def size_breaches(path: str, tree: ast.AST, n_lines: int) -> Iterator[str]:
    if n_lines > MAX_FILE_LINES:
        yield f"{path}: {n_lines} lines"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {size} lines"


def breaches(path: str, source: str) -> list[str]:
    """The violations in a file of the package, one line each."""
    tree = ast.parse(source, path)
    found = (
        [] if path in ENTRY_POINTS or package_of(path) in PACKAGES else [f"{path}: {package_of(path)} is no package"]
    )
    if found:
        return found
    if NAMES_WITHOUT_A_PURPOSE.search(PurePosixPath(path).stem):
        found.append(f"{path}: a name without a purpose")
    return [
        *found,
        *import_breaches(path, tree),
        *part_breaches(path, tree),
        *print_breaches(path, tree),
        *size_breaches(path, tree, source.count("\n")),
    ]


@pytest.mark.parametrize("path", FILES)
def test_the_file_follows_the_rules(path: str) -> None:
    assert breaches(path, (REPOSITORY / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("gptlite/config/x.py", "from gptlite.data.dataset.prepared import verify", "config imports data"),
        ("gptlite/config/x.py", "def f():\n    import gptlite.model", "config imports model"),
        ("gptlite/data/dataset/x.py", "from gptlite.data.preparing.corpus import f", "data.dataset imports data.prep"),
        ("gptlite/data/sources/x.py", "if TYPE_CHECKING:\n    from ..dataset import tokens", "imports data.dataset"),
        ("gptlite/runs/x.py", "from ..training import loop", "runs imports training"),
        ("gptlite/model/x.py", "from gptlite.compute.device import settings", "model imports compute"),
        ("gptlite/errors.py", "from .storage import files", "errors imports storage"),
        ("gptlite/errors.py", "from gptlite.storage import files", "errors imports storage"),
        ("gptlite/model/x.py", "import importlib\nimportlib.import_module('gptlite.cli')", "model imports cli"),
        ("gptlite/model/x.py", "from importlib import import_module\nimport_module(f'gptlite.{x}')", "computed"),
        ("gptlite/cli/x.py", "from gptlite import load", "no package"),
        ("gptlite/training/loop.py", "from gptlite.course import follow", "training imports course"),
        ("gptlite/runs/x.py", "import torch.utils.tensorboard", "imports torch"),
        ("gptlite/cli/x.py", "def f():\n    from torch import Tensor", "imports torch"),
        ("gptlite/data/dataset/shards.py", "from safetensors.torch import save", "imports safetensors.torch"),
        ("gptlite/model/gpt.py", "class A:\n    def f(self):\n        print(1)", "print"),
        ("gptlite/views/x.py", "import sys\nsys.stderr.write('')", "sys.stderr.write"),
        ("gptlite/model/tensor_utils.py", "", "without a purpose"),
        ("gptlite/attic/x.py", "", "attic is no package"),
        ("gptlite/model/x.py", "\n" * 301, "301 lines"),
        ("gptlite/model/x.py", "def f():\n" + "    x = 1\n" * 50, "f has 51 lines"),
    ],
)
def test_a_violation_is_found(path: str, source: str, complaint: str) -> None:
    assert [complaint in breach for breach in breaches(path, source)] == [True]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("gptlite/__init__.py", "def __getattr__(name):\n    from gptlite.training import loop"),
        ("gptlite/data/dataset/batches.py", "import torch\nfrom gptlite.data.dataset.prepared import map_shard"),
        ("gptlite/runs/metrics.py", "class ConsoleSink:\n    def log(self):\n        print(1)"),
        ("gptlite/cli/app.py", "from gptlite import __version__\nprint(__version__)"),
        ("gptlite/model/x.py", "\n" * 300),
    ],
)
def test_allowed_code_passes(path: str, source: str) -> None:
    assert breaches(path, source) == []


def test_there_are_no_import_cycles() -> None:
    sources = {path: (REPOSITORY / path).read_text(encoding="utf-8") for path in FILES}
    assert find_cycle(sources) == []


@pytest.mark.parametrize(
    ("back", "is_cycle"),
    [
        ("from gptlite.cli.train import command", True),
        ("def f():\n    from gptlite.cli.train.command import train", True),
        ("from .train import command", True),
        ("if TYPE_CHECKING:\n    from gptlite.cli.train.command import train", True),
        ("from gptlite.cli.train import options", False),
    ],
)
def test_an_import_cycle_is_found(back: str, is_cycle: bool) -> None:
    train, sweep = "gptlite/cli/train/command.py", "gptlite/cli/sweep.py"
    assert bool(find_cycle({train: "import gptlite.cli.sweep", sweep: back})) is is_cycle


def test_files_without_torch_can_be_imported_where_torch_cannot() -> None:
    # A file can reach torch through a neighbour that may use it; only an import tells.
    paths = [path for path in FILES if not may_use_torch(path) and path != "gptlite/__main__.py"]
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]
    code = f"import sys; sys.modules['torch'] = None\nfor name in {names!r}: __import__(name)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines)
    declared = {re.split(r"[^\w-]", line)[0].lower().replace("-", "_") for line in (*project["dependencies"], *extras)}
    named_otherwise = {"yaml", "tiktoken_ext", "PIL"}  # by pyyaml, tiktoken and pillow
    known = declared | named_otherwise | sys.stdlib_module_names | {"gptlite"}
    unknown = {
        f"{path}:{line}: {name}"
        for path in FILES
        for line, name in imports(path, ast.parse((REPOSITORY / path).read_text(encoding="utf-8")))
        if name.partition(".")[0] not in known and path not in ENTRY_POINTS
    }
    assert unknown == set()

"""The recipes of CONTRIBUTING.md: each is followed in a copy of the repository, and the tests that it names pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = ("-m", "gptlite.config.documents")


@dataclass(frozen=True)
class Recipe:
    """Changes of files, each (path, what stands there once, what stands there instead), and the tests to run."""

    heading: str
    changes: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]
    generates: bool = True  # the comments of configs/ and schema.json

    @property
    def text(self) -> str:
        """The section of CONTRIBUTING.md."""
        text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
        return text.partition(f"### {self.heading}\n")[2].partition("\n#")[0]


SQLITE_TEST = """
def test_a_folder_of_sqlite_is_read_and_a_change_of_its_rows_is_seen(tmp_path: Path) -> None:
    import sqlite3

    from gptlite.config.schema import DataSection, TokenizerSection
    from gptlite.data.preparing.fingerprint import compute_fingerprint

    path = tmp_path / "texts" / "a.sqlite"
    path.parent.mkdir()
    database, fingerprints = sqlite3.connect(path), set()
    database.execute("CREATE TABLE texts (text)")
    for rows in (1, 2):
        database.execute("INSERT INTO texts VALUES (?)", (f"row {rows}",))
        database.commit()
        data = DataSection(source=str(path.parent), dir=str(tmp_path / "data"))
        fingerprints.add(compute_fingerprint(data, TokenizerSection()))
    assert read(path) == read(path.parent) == ["row 1", "row 2"]
    assert len(fingerprints) == 2
    write(path.parent / "b.txt", "text")
    assert read(path.parent) == ["text"]


"""

RECIPES = {
    "activation": Recipe(
        "An activation, or another value of a model key",
        (
            ("gptlite/config/schema.py", 'Literal["relu", "gelu"]', 'Literal["relu", "gelu", "relu2"]'),
            (
                "gptlite/model/activations.py",
                '    "relu": Activation(F.relu, "relu"),  # max(x, 0)\n',
                '    "relu": Activation(F.relu, "relu"),  # max(x, 0)\n'
                '    "relu2": Activation(lambda x: F.relu(x).square(), None),  # max(x, 0)^2\n',
            ),
            (
                "tests/numpy_gpt.py",
                '    "relu": lambda x: np.maximum(x, 0),\n',
                '    "relu": lambda x: np.maximum(x, 0),\n    "relu2": lambda x: np.maximum(x, 0) ** 2,\n',
            ),
        ),
        ("tests/model/test_activations.py", "tests/model/test_numpy_gpt.py", "tests/config/test_documents.py"),
    ),
    "position": Recipe(
        "A position encoding",
        (
            (
                "gptlite/config/schema.py",
                'Literal["learned", "sinusoidal", "none"]',
                'Literal["learned", "sinusoidal", "ramp", "none"]',
            ),
            (
                "gptlite/model/init.py",
                "def frequencies(",
                "def ramp(n_positions: int, n_embd: int) -> Tensor:\n"
                '    """Return rows that grow evenly: (T, C)."""\n'
                "    return torch.arange(n_positions)[:, None].expand(-1, n_embd) / 64\n\n\n"
                "def frequencies(",
            ),
            ("gptlite/model/gpt.py", "initialise, sinusoids", "initialise, ramp, sinusoids"),
            (
                "gptlite/model/gpt.py",
                "        self.blocks = nn.ModuleList(",
                '        elif cfg.position == "ramp":\n'
                "            table = ramp(cfg.block_size, cfg.n_embd)\n"
                '            self.register_buffer("position_table", table, persistent=False)\n'
                "        self.blocks = nn.ModuleList(",
            ),
            (
                "gptlite/model/gpt.py",
                '        elif self.cfg.position == "sinusoidal":',
                '        elif self.cfg.position in ("sinusoidal", "ramp"):',
            ),
            (
                "gptlite/views/attention.py",
                "POSITIONS = {  # by model.position\n",
                'POSITIONS = {  # by model.position\n    "ramp": f"{NO_ORDER} Rows grow by 1/64.",\n',
            ),
            (
                "tests/numpy_gpt.py",
                "    token_std = 1.0",
                '    if keys["position"] == "ramp":\n'
                '        return np.arange(n_positions)[:, None] / 64 * np.ones(keys["n_embd"])\n'
                "    token_std = 1.0",
            ),
        ),
        (
            "tests/model/test_numpy_gpt.py",
            "tests/model/test_gpt2_layout.py",
            "tests/views/test_pages.py",
            "tests/config/test_documents.py",
        ),
    ),
    "option of sample": Recipe(
        "An option of `gptlite sample`",
        (
            (
                "gptlite/config/training.py",
                "    repetition_penalty:",
                "    n_sigma: Positive | None = key(\n"
                '        None, "drop tokens with a logit so many deviations below the largest; null: none"\n'
                "    )\n"
                "    repetition_penalty:",
            ),
            (
                "gptlite/cli/sample/command.py",
                '    "repetition_penalty": _key(',
                '    "n_sigma": _key(float, "X", "Draw from the largest logits."),\n    "repetition_penalty": _key(',
            ),
            (
                "gptlite/cli/sample/command.py",
                '"sample.min_p", "sample.s',
                '"sample.min_p", "sample.n_sigma", "sample.s',
            ),
            ("gptlite/config/rules.py", '"min_p", "repetition_penalty"', '"min_p", "n_sigma", "repetition_penalty"'),
            (
                "gptlite/inference/sampling.py",
                "    return draw(logits, rngs)\n",
                "    if params.n_sigma is not None:\n"
                "        logits = keep_n_sigma(logits, params.n_sigma)\n"
                "    return draw(logits, rngs)\n\n\n"
                "def keep_n_sigma(logits: Logits, n: float) -> Logits:\n"
                '    """Keep logits at most n standard deviations below the largest."""\n'
                "    sigma = logits.std(-1, keepdims=True, where=np.isfinite(logits))\n"
                "    return np.where(logits < logits.max(-1, keepdims=True) - n * sigma, -math.inf, logits)\n",
            ),
            ("docs/sampling.md", "| `--min-p P`", "| `--n-sigma X` | only the largest logits |\n| `--min-p P`"),
            (
                "tests/cli/test_every_option_acts.py",
                '        "repetition_penalty": (DRAW,',
                '        "n_sigma": (DRAW, ["--n-sigma", "1"]),\n        "repetition_penalty": (DRAW,',
            ),
            (
                "tests/inference/test_sampling.py",
                "import pytest\n",
                "import pytest\n\n"
                "from gptlite.inference.sampling import keep_n_sigma\n\n\n"
                "def test_n_sigma_by_hand():  # a mean of 5 and a standard deviation of 2\n"
                "    kept = keep_n_sigma(np.array([[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]]), 1.5)\n"
                "    assert np.isfinite(kept).tolist() == [[False] * 6 + [True] * 2]\n\n",
            ),
        ),
        (
            "tests/cli/test_every_option_acts.py::test_every_option_changes_what_the_command_does[sample]",
            "tests/inference/test_sampling.py",
            "tests/config/test_documents.py",
            "tests/test_documents.py",
        ),
    ),
    "metric": Recipe(
        "A metric of an update",
        (
            (
                "gptlite/training/diagnostics.py",
                "def learning_rates(",
                "def weight_norm(model: GPT) -> float:\n"
                '    """Norm of all parameters together."""\n'
                "    return get_total_norm(list(model.parameters())).item()\n\n\n"
                "def learning_rates(",
            ),
            ("gptlite/training/step.py", "learning_rates\n", "learning_rates, weight_norm\n"),
            (
                "gptlite/training/step.py",
                "    if update_ratio is not None and cfg.log.grad_norms:\n",
                "    if update_ratio is not None:\n"
                '        more["weight_norm"] = weight_norm(model)\n'
                "    if update_ratio is not None and cfg.log.grad_norms:\n",
            ),
            (
                "docs/tensorboard.md",
                "| `train/update_ratio` |",
                "| `train/weight_norm` | norm of all parameters |\n| `train/update_ratio` |",
            ),
        ),
        (
            "tests/training/test_logging_setup.py",
            "tests/training/test_step.py::test_diagnostics_do_not_change_the_update",
            "tests/training/test_step.py::test_an_update_reads_no_number_from_the_device",
        ),
        generates=False,
    ),
    "source format": Recipe(
        "A source format",
        (
            (
                "gptlite/data/sources/documents.py",
                '    ".csv": (',
                '    ".sqlite": ("column", records.sqlite_rows),\n    ".csv": (',
            ),
            (
                "gptlite/data/sources/documents.py",
                "    return format_of(head)",
                '    if head.startswith(b"SQLite format 3\\0") and reading.documents == "records":\n'
                "        return False\n"
                "    return format_of(head)",
            ),
            ("gptlite/data/sources/records.py", "import json\n", "import contextlib\nimport json\nimport sqlite3\n"),
            (
                "gptlite/data/sources/records.py",
                "def rows(",
                "def sqlite_rows(path: Path, column: str, lines: Iterable[str]) -> Iterator[tuple[int, str]]:\n"
                '    """Yield the values of a column of the only table."""\n'
                "    with contextlib.closing(sqlite3.connect(path)) as database:\n"
                '        (table,) = database.execute("SELECT name FROM sqlite_master").fetchone()\n'
                '        found = database.execute(f\'SELECT "{column}" FROM "{table}"\')\n'
                "        for number, (text,) in enumerate(found, 1):\n"
                '            yield number, check_text(text, f"{path}, row {number}")\n\n\n'
                "def rows(",
            ),
            ("gptlite/config/schema.py", ".json, .csv or .tsv", ".json, .csv, .tsv or .sqlite"),
            ("docs/training.md", "| `.csv`, `.tsv` |", "| `.sqlite` | a row | as for CSV |\n| `.csv`, `.tsv` |"),
            (
                "tests/data/sources/test_documents.py",
                "def test_rows_of_csv_and_tsv_are_documents",
                SQLITE_TEST + "def test_rows_of_csv_and_tsv_are_documents",
            ),
        ),
        (
            "tests/data/sources/test_documents.py",
            "tests/data/sources/test_sources.py",
            "tests/config/test_documents.py",
        ),
    ),
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_names_every_place(recipe: Recipe) -> None:
    named = re.findall(r"[\w/]+\.(?:py|md)", recipe.text)
    assert {path for path, _, _ in recipe.changes} - set(named) == set()
    assert (" ".join(DOCUMENTS) in recipe.text) == recipe.generates


def run_python(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]


@pytest.mark.slow
def test_the_recipes_hold(tmp_path: Path) -> None:
    """All in one copy of what the tests read: starting pytest and torch takes longer than most of the tests."""
    for name in ("gptlite", "tests", "configs", "docs", "scripts"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("data/*.yaml"), REPOSITORY / "pyproject.toml"]:
        (tmp_path / path.relative_to(REPOSITORY)).parent.mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / path.relative_to(REPOSITORY))
    for name, before, after in (change for recipe in RECIPES.values() for change in recipe.changes):
        text = (tmp_path / name).read_text("utf-8")
        assert text.count(before) == 1, (name, before)
        (tmp_path / name).write_text(text.replace(before, after), "utf-8")
    run_python(tmp_path, *DOCUMENTS)
    tests = dict.fromkeys(test for recipe in RECIPES.values() for test in recipe.tests)
    run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests)

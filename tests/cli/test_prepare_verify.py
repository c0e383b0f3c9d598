"""`gptlite prepare --verify`: file by file whether a prepared folder is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

FILES = [
    "MANIFEST.json",
    *("tokenizer/gptlite_tokenizer.json", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"),
    *("train-00000.bin", "val-00000.bin"),
]
VERIFY = ("prepare", "-c", "nano.yaml", "--verify")


@pytest.fixture
def folder(gptlite) -> Path:
    return Path(gptlite("prepare", "-c", "nano.yaml").out.split()[-1])


def states(out: str) -> dict[str, str]:
    """The state of each file that was printed below the folder."""
    return {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in out.splitlines()[1:]}


def everything() -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in Path().rglob("*")}


def test_a_whole_folder_is_listed_and_nothing_is_written(gptlite, folder):
    before = everything()
    result = gptlite(*VERIFY)
    assert (result.code, result.out.splitlines()[0]) == (0, str(folder))
    assert states(result.out) == dict.fromkeys(FILES, "ok")
    assert everything() == before


def test_damaged_files_are_named_with_what_to_do(gptlite, folder):
    ids = (folder / "val-00000.bin").read_bytes()
    (folder / "val-00000.bin").write_bytes(ids[:-1] + bytes([ids[-1] ^ 1]))
    (folder / "train-00000.bin").unlink()
    (folder / "tokenizer/tokenizer.json").write_text("{}")
    before = everything()
    result = gptlite(*VERIFY)
    found = states(result.out)
    assert list(found) == FILES
    assert found["tokenizer/tokenizer_config.json"] == "ok"
    assert found["train-00000.bin"] == "this file is missing"
    assert found["val-00000.bin"].startswith("this file changed after it was written: its sha256 was ")
    assert found["tokenizer/tokenizer.json"].startswith("the file has 2 bytes, and MANIFEST.json says ")
    assert result.code == 2
    assert result.err.splitlines()[-1] == (
        f"error: {folder}: 3 damaged files: tokenizer/tokenizer.json, train-00000.bin, val-00000.bin. Restore what is "
        "damaged, or remove the folder and prepare the text again."
    )
    assert everything() == before


def test_a_damaged_manifest_is_named(gptlite, folder):
    path = folder / "MANIFEST.json"
    path.write_text(path.read_text().replace('"start_id": ', '"start_id": 1'))
    result = gptlite(*VERIFY)
    assert result.code == 2
    assert states(result.out)["MANIFEST.json"].startswith("this file ")
    assert result.err.splitlines()[-1].startswith(f"error: {folder}: 1 damaged file: MANIFEST.json. Restore ")


def test_a_text_that_is_not_prepared_is_one_line(gptlite, folder):
    result = gptlite(*VERIFY, "--set", "data.val_fraction=0.3")
    assert (result.code, result.out) == (2, "")
    assert "the text is not prepared with these keys" in result.err.splitlines()[-1]

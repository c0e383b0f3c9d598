from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from gptlite.data.sources.sources import keep_standard_input
from gptlite.errors import DataError


def test_standard_input_becomes_a_file_named_by_its_content(tmp_path: Path) -> None:
    # sha256 of "text\n", by sha256sum
    path = keep_standard_input(io.BytesIO(b"text\n"), tmp_path / "a/b")
    assert path == tmp_path / "a/b/stdin-b9e68e1bea3e.txt"
    assert path.read_bytes() == b"text\n"
    path.write_bytes(b"something else")
    assert keep_standard_input(io.BytesIO(b"text\n"), path.parent) == path
    assert path.read_bytes() == b"text\n"
    assert sorted(path.parent.iterdir()) == [path.parent / ".gitignore", path]


def test_git_does_not_add_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    keep_standard_input(io.BytesIO(b"a letter\n"), tmp_path / "data/stdin")
    seen = subprocess.run(
        ["git", "-C", tmp_path, "add", "--dry-run", "--all", "."], check=True, capture_output=True, text=True
    )
    assert seen.stdout == ""


def test_a_broken_or_empty_stream_leaves_nothing(tmp_path: Path) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_standard_input(Broken(), tmp_path)
    with pytest.raises(DataError, match="standard input has no text"):
        keep_standard_input(io.BytesIO(), tmp_path)
    assert list(tmp_path.iterdir()) == []

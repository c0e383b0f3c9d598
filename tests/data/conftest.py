from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.config.schema import DataSection


@pytest.fixture
def section() -> Callable[..., DataSection]:
    def of(folder: Path, files: dict[str, str], **keys: Any) -> DataSection:
        """A config for these files, one of them or a folder of them, prepared below `folder`."""
        texts = folder / "texts"
        texts.mkdir(exist_ok=True)
        for name, text in files.items():
            (texts / name).write_bytes(text.encode())
        source = texts / next(iter(files)) if len(files) == 1 else texts
        return DataSection(**{"source": str(source), "dir": str(folder / "prepared")} | keys)

    return of


@pytest.fixture
def tree() -> Callable[[Path], dict[str, str]]:
    def of(folder: Path) -> dict[str, str]:
        """Every file under a folder with its sha256."""
        return {
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*")
            if path.is_file()
        }

    return of

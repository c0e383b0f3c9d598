from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str, str, dict[str, str]], Path]:
    """Writes the files that say where a process is and what limits it has, and returns the folder of them."""

    def write(groups: str, mounts: str, limits: dict[str, str]) -> Path:
        for name, text in {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts, **limits}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return write

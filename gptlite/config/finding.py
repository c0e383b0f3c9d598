"""Where a config is found by name, and the files that ship with gptlite."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from gptlite.config.accepted import shown
from gptlite.errors import ConfigError

SUFFIXES = (".yaml", ".yml")


def builtin_folder(kind: Literal["configs", "data"]) -> Path:
    """The shipped configs or data-set cards: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "builtin" / kind
    return inside if inside.is_dir() else package.parent / kind


def find_config(name: str | Path) -> Path:
    """The file that `name` means: as given, else in ./configs, else a shipped one; ".yaml" may be left out.

    Raises ConfigError saying where it looked and which configs exist.
    """
    folders = [Path(), Path("configs"), builtin_folder("configs")]
    for folder in folders:
        for suffix in ("", SUFFIXES[0]):
            path = folder / f"{name}{suffix}"
            if os.path.exists(path) and not os.path.isdir(path):  # unlike Path's, these never raise
                return path
    if os.path.isdir(name):
        raise ConfigError(f"--config = {shown(str(name))}: a YAML file, and this is a folder; name a file in it")
    known = sorted({path.name for folder in folders[1:] for path in folder.glob("*") if path.suffix in SUFFIXES})
    stems = {Path(file).stem: file for file in known}
    close = difflib.get_close_matches(Path(name).stem, stems, n=1)
    advice = f"did you mean {stems[close[0]]}?" if close else "name one of these or give a path"
    looked = "" if Path(name).is_absolute() else " here, in configs/ or built in"
    raise ConfigError(f"--config = {shown(str(name))}: no such file{looked}; there are {', '.join(known)}; {advice}")

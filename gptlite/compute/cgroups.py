"""The control groups that limit this process: containers and batch systems set them (Linux, both versions)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders with the limits of a controller ("cpu", "memory"): of this process's group and those around it.

    root: the folder in which the system's files are looked for.
    """
    groups: dict[str, PurePosixPath] = {}  # by v1's controllers; the one tree of v2 names none
    for line in lines(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), PurePosixPath(group))
    for line in lines(root / "proc/self/mountinfo"):
        mount, _, filesystem = line.partition(" - ")
        kind, *_, options = filesystem.split()
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            top, folder = mount.split()[3:5]
            mine = groups.get("" if kind == "cgroup2" else controller, PurePosixPath(top))
            below = mine.relative_to(top) if mine.is_relative_to(top) else PurePosixPath()
            for path in (below, *below.parents):
                yield root / folder.lstrip("/") / path


def lines(path: Path) -> list[str]:
    """Return the lines of a system file; [] if it is missing."""
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:  # not this system, not this controller: nothing there limits us
        return []

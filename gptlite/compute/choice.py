"""A value that replaced `auto`, or was given, and the reason: what run.json records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DEVICES = ("cuda", "mps", "cpu")  # the fastest first
GIVEN = "given"  # the reason of a value that the config contains


@dataclass(frozen=True)
class Choice:
    """A value and why it was chosen."""

    value: Any
    reason: str

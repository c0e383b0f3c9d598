"""Faults of operations on files, as gptlite.storage.files makes them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest

from gptlite.storage import files


class Killed(BaseException):
    """Simulates a SIGKILL: nothing on disk changes after it."""


def stop_after(
    operations: int,
    patch: pytest.MonkeyPatch,
    error: BaseException | type[BaseException] = Killed,
    only: Collection[Callable[..., Any]] | None = None,
) -> list[str]:
    """After so many operations, every one raises `error`. Returns the names of those that happened, as they happen.

    only: the operations that count and fail; None for all.
    """
    happened: list[str] = []

    def syscall(operation: Callable[..., Any], *arguments: Any) -> Any:
        if only is None or operation in only:
            if len(happened) >= operations:
                raise error
            happened.append(operation.__name__)
        return operation(*arguments)

    patch.setattr(files, "syscall", syscall)
    return happened

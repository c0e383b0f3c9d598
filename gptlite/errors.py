"""What a user can do wrong, and the exit code of each kind.

    UserError            2   configuration and input
    ├── ConfigError      2   a config file, --set, or a command-line option
    ├── DataError        2   text, tokenizers, prepared datasets
    ├── RunError         2   run folders, locks, checkpoints
    ├── Diverged         3   training that went non-finite
    ├── StorageError     4   disk and network
    └── Interrupted    128+n  stopped by signal n, with a checkpoint saved

A message reads `where: what = value: what is accepted; what to do`; the command line puts `error: ` before it.
Anything that is not a UserError is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class UserError(Exception):
    """One or several problems that the user can mend, one line each."""

    exit_code = 2

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class ConfigError(UserError):
    """A config file, an override or a command-line option."""


class DataError(UserError):
    """Text, tokenizers or prepared datasets."""


class RunError(UserError):
    """Run folders, locks or checkpoints."""


class Diverged(UserError):
    """Training went non-finite."""

    exit_code = 3


class StorageError(UserError):
    """Disk or network."""

    exit_code = 4


class Interrupted(UserError):
    """A signal stopped the work; what was done is saved."""

    def __init__(self, signum: int, message: str) -> None:
        self.exit_code = 128 + signum
        super().__init__(message)


@contextmanager
def naming(word: str, typed: str) -> Iterator[None]:
    """Name what the user typed in messages that begin with another word for it: the library says `text = 1 token`, and
    whoever gave a file reads `a.txt = 1 token`."""
    try:
        yield
    except UserError as error:
        starts = (f"{word} =", f"{word}:")
        error.problems = tuple(typed + p.removeprefix(word) if p.startswith(starts) else p for p in error.problems)
        raise


@contextmanager
def gathered(problems: list[str]) -> Iterator[None]:
    """Keep what the user did wrong inside, so that it can be reported together with what is wrong elsewhere."""
    try:
        yield
    except UserError as error:
        if error.exit_code != UserError.exit_code:
            raise
        problems += error.problems

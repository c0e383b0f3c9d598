"""Errors that a user can cause, and the exit code of each kind.

    UserError            2   configuration and input
    ├── ConfigError      2   a config file, --set, or a command-line option
    ├── DataError        2   text, tokenizers, prepared data sets
    ├── RunError         2   run folders, locks, checkpoints
    │   └── Damaged      2   what gptlite wrote, and something changed
    ├── Diverged         3   training that went non-finite
    ├── StorageError     4   disk and network
    └── Interrupted    128+n  stopped by signal n

A problem is a written sentence and the place it is about. The command line prints `error: place: sentence`.
Anything that is not a UserError is a bug and keeps its traceback.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """A sentence that says what is wrong and what to do, and where: a file, a line of one, an option, a run."""

    sentence: str
    where: str | None = None

    def __str__(self) -> str:
        return self.sentence if self.where is None else f"{self.where}: {self.sentence}"


class UserError(Exception):
    """One or several problems that the user can solve, one line each."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Iterable[str | Problem], where: str | None = None) -> None:
        """where: the place of the problems that have none."""
        given = [problems] if isinstance(problems, str | Problem) else problems
        self.problems = tuple(Problem(each, where) if isinstance(each, str) else each for each in given)
        super().__init__(str(self))

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class ConfigError(UserError):
    """A config file, an override or a command-line option."""


class DataError(UserError):
    """Text, tokenizers or prepared data sets."""


class RunError(UserError):
    """Run folders, locks or checkpoints."""


class Damaged(RunError):
    """A file or folder that is not what gptlite wrote."""


class Diverged(UserError):
    """Training went non-finite. facts: the step and the highest learning rate, for diverged.json."""

    exit_code = 3

    def __init__(self, sentence: str, where: str, facts: Mapping[str, object]) -> None:
        self.facts = facts
        super().__init__(sentence, where)


class ProcessFailed(UserError):
    """A process of this run failed and has said why, or was killed, which the sentence says."""

    def __init__(self, exit_code: int, killed: Iterable[str] = ()) -> None:
        self.exit_code = exit_code
        super().__init__(killed)


class StorageError(UserError):
    """Disk or network."""

    exit_code = 4


class Interrupted(UserError):
    """A signal stopped the work. The sentence says what was saved; `handle` names the run that can be resumed."""

    def __init__(self, signum: int, sentence: str, where: str | None = None, *, handle: str | None = None) -> None:
        self.exit_code = 128 + signum
        self.handle = handle
        super().__init__(sentence, where)


@contextmanager
def located(where: str, *, at: str | None = None) -> Iterator[None]:
    """Give errors from inside a place: those that have none, or whose place the library calls `at`.

    The library says that the text is too short; whoever knows which file it came from adds the name.
    """
    try:
        yield
    except UserError as error:
        error.problems = tuple(
            dataclasses.replace(each, where=where) if each.where == at else each for each in error.problems
        )
        raise


@contextmanager
def gathered(problems: list[Problem]) -> Iterator[None]:
    """Collect the problems of an error raised inside, so that they can be reported together with others.

    Only errors of the user's own input; a full disk is raised at once.
    """
    try:
        yield
    except UserError as error:
        if error.exit_code != UserError.exit_code:
            raise
        problems += error.problems

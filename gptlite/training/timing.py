"""What the clock decides in training: how much of the time has passed at each update, when to evaluate, and the end.

It is decided as training goes (Measured), or as another run recorded it (Replay): under `time`, each line of
metrics.jsonl for the training loss has the fraction at each update since the line before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeAlias

from gptlite.errors import RunError
from gptlite.planning.choose_training import EVALUATIONS, updates_per_evaluation
from gptlite.runs.run import CLOCK, Run
from gptlite.runs.summary import read_log
from gptlite.storage.sealed import read_sealed, write_sealed
from gptlite.training.checkpointing import TrainState
from gptlite.training.trainer import Trainer

DIGITS = 7  # of a fraction, so that what is recorded is what was used


class Measured:
    """Ends when steps or minutes have run out, or `patience` evaluations in a row brought no new best.

    Evaluates every eval.every; where the clock has left `auto`, when another one of EVALUATIONS parts of the time is
    over, and when the text was read EPOCHS_PER_EVALUATION times, as far as evaluations take no more than a fifth of
    the time.
    """

    def __init__(self, trainer: Trainer, state: TrainState) -> None:
        cfg, n_tokens = trainer.cfg, trainer.batches.n_tokens
        every = cfg.eval.every
        self._train_cfg, self._by_clock = cfg.train, every == "auto"
        self._every = every if isinstance(every, int) else updates_per_evaluation(cfg, n_tokens)
        self._part, self._newest = self._part_of(state), state.step

    def fraction(self, state: TrainState) -> float | None:
        """Return how much of the time for updates has passed, in 0 .. 1; None where steps are counted.

        The last evaluation and its checkpoint come after that time.
        """
        if self._train_cfg.max_minutes is None:
            return None
        seconds = 60 * self._train_cfg.max_minutes - state.final_eval_seconds
        return min(1.0, round(state.elapsed / seconds, DIGITS)) if seconds > 0 else 1.0

    def evaluation_follows(self, state: TrainState) -> bool:
        """Return whether an evaluation follows the next update. An end by the clock cannot be foreseen here."""
        step, part = state.step + 1, self._part_of(state)
        if not self._by_clock:
            return step % self._every == 0 or step == self._train_cfg.updates
        is_new = part > self._part or step // self._every > self._newest // self._every
        if not is_new or step - self._newest < 4 * state.evaluation_updates:
            return False
        self._part, self._newest = part, step
        return True

    def is_done(self, state: TrainState) -> bool:
        """Return whether training is over."""
        cfg = self._train_cfg
        impatient = cfg.patience is not None and state.evaluations_since_best >= cfg.patience
        used_up = self.fraction(state) == 1.0 if cfg.updates is None else state.step >= cfg.updates
        return used_up or impatient

    def progress(self, state: TrainState) -> tuple[str, float, float]:
        """Return the unit in which training is counted, `updates` or `seconds`; those made, and the total."""
        cfg = self._train_cfg
        if cfg.max_minutes is None:
            return "updates", state.step, cfg.updates or 0
        return "seconds", state.elapsed, 60 * cfg.max_minutes

    def _part_of(self, state: TrainState) -> int:
        return int(EVALUATIONS * (self.fraction(state) or 0.0))


@dataclass(frozen=True)
class Replay:
    """What the clock decided in another run.

    fractions: at each update. evaluations: the steps that one followed. patience: of a run that it ended, which was not
    known before the last evaluation.
    """

    fractions: tuple[float, ...]
    evaluations: frozenset[int]
    patience: int | None

    @classmethod
    def of(cls, run: Run) -> Replay:
        """Return what `run` recorded. RunError where it did not end by the clock, or has not recorded all of it."""
        if not run.finished:
            raise RunError("it is not finished. Resume it first: its clock is not complete.", f"run {run.name}")
        end, lines = run.end, read_log(run)
        recorded = [line.get("time", {}).get("fractions", []) for line in lines if line.get("split") == "train"]
        fractions = tuple(itertools.chain(*recorded, end.get("fractions", [])))
        if not fractions or len(fractions) != end["step"]:
            raise RunError(
                "it has no record of its clock: it counted updates, or an earlier version of gptlite trained it.",
                f"run {run.name}",
            )
        return cls(fractions, frozenset(line["step"] for line in lines if "bits_per_byte" in line), end.get("patience"))

    @classmethod
    def saved_in(cls, run: Run) -> Replay | None:
        """Return what `run` replays; None where it is timed itself."""
        path = run.path / CLOCK
        if not path.exists():
            return None
        saved = read_sealed(path)
        return cls(tuple(saved["fractions"]), frozenset(saved["evaluations"]), saved["patience"])

    def save(self, run: Run) -> None:
        """Write it into the folder of a run that replays it, which may be resumed."""
        write_sealed(run.path / CLOCK, {**asdict(self), "evaluations": sorted(self.evaluations)})

    def fraction(self, state: TrainState) -> float:
        return self.fractions[min(state.step, len(self.fractions) - 1)]

    def evaluation_follows(self, state: TrainState) -> bool:
        return state.step + 1 in self.evaluations

    def is_done(self, state: TrainState) -> bool:
        if self.patience is not None and state.step == len(self.fractions):
            return state.evaluations_since_best >= self.patience
        return state.step >= len(self.fractions)

    def progress(self, state: TrainState) -> tuple[str, float, float]:
        return "updates", state.step, len(self.fractions)


Timing: TypeAlias = Measured | Replay  # each decides what depends on the time. `state`: after the newest update


def clock_for(trainer: Trainer, so_far: float, now: Callable[[], float]) -> Callable[[], float]:
    """Return a clock of the seconds of training over all sessions; the main process's where it ends training."""
    zero, dist = now() - so_far, trainer.dist
    if trainer.cfg.train.max_minutes is None:
        return lambda: now() - zero
    return lambda: dist.number_of_main(now() - zero)

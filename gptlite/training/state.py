"""Where training stands: what a checkpoint keeps beside the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gptlite.inference.score import Score


@dataclass(frozen=True)
class TrainState:
    """Numbers that training continues from. Nothing random is kept: batches and masks follow from seed and step."""

    step: int = 0  # updates done
    tokens: int = 0  # trained on so far, each visit counted
    # Since the last log line, so that a run resumed between two lines writes the line of an uninterrupted one.
    loss_sum: float = 0.0
    loss_steps: int = 0
    # Of the evaluations so far.
    best_step: int | None = None
    best_loss: float | None = None
    best_bits_per_byte: float | None = None
    evaluations_since_best: int = 0
    elapsed: float = 0.0  # seconds of training, evaluations and checkpoints included, over all sessions
    ending: float = 0.0  # seconds that the newest evaluation and its checkpoint took: the last ones will, too

    def after(self, loss: float, tokens: int) -> TrainState:
        """One update later."""
        return replace(
            self,
            step=self.step + 1,
            tokens=self.tokens + tokens,
            loss_sum=self.loss_sum + loss,
            loss_steps=self.loss_steps + 1,
        )

    @property
    def mean_loss(self) -> float:
        """Mean training loss since the last log line, in nats per token."""
        return self.loss_sum / self.loss_steps

    def logged(self) -> TrainState:
        """After a log line: a new mean begins."""
        return replace(self, loss_sum=0.0, loss_steps=0)

    def seen(self, score: Score) -> TrainState:
        """After an evaluation at this step."""
        if self.best_loss is not None and score.loss >= self.best_loss:
            return replace(self, evaluations_since_best=self.evaluations_since_best + 1)
        return replace(
            self,
            best_step=self.step,
            best_loss=score.loss,
            best_bits_per_byte=score.bits_per_byte,
            evaluations_since_best=0,
        )

    def paused_until(self, now: float, *, looked_and_saved: bool) -> TrainState:
        """After a look or a save, or both, that ended `now`, in seconds of training."""
        return replace(self, elapsed=now, ending=now - self.elapsed if looked_and_saved else self.ending)

    @property
    def is_new_best(self) -> bool:
        """Whether the newest evaluation was made at this step and was the best so far."""
        return self.best_step == self.step

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainState:
        return cls(**values)

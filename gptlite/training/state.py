"""The state of training that a checkpoint keeps besides the tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gptlite.inference.score import Score

RECENT = 10  # updates that `update_seconds` is averaged over


@dataclass(frozen=True)
class TrainState:
    """The state that training resumes from. No random state is kept: batches and masks follow from seed and step."""

    step: int = 0  # updates done
    tokens: int = 0  # trained on so far, each epoch counted
    # Since the last log line, so that a run resumed between two lines writes the line of an uninterrupted one.
    loss_sum: float = 0.0
    loss_steps: int = 0
    best_step: int | None = None
    best_loss: float | None = None
    best_bits_per_byte: float | None = None
    evaluations_since_best: int = 0
    evaluation_due: bool = False  # at this step: a signal came before it, and the resume makes it up
    elapsed: float = 0.0  # seconds of training, evaluations and checkpoints included, over all sessions
    # With these, a run that the clock ends leaves time for its last evaluation and checkpoint. An evaluation's time is
    # kept in updates, because a busy machine slows both down alike.
    update_seconds: float = 0.0  # mean of the recent updates
    evaluation_updates: float = 0.0  # estimated until there was an evaluation
    save_seconds: float = 0.0  # of the newest checkpoint

    def after_update(self, loss: float, tokens: int, now: float) -> TrainState:
        """After an update that ended `now`, in seconds of training."""
        seconds = now - self.elapsed
        if self.step == 0:
            seconds = 0.0  # the first update waits for what is loaded or compiled then
        elif self.update_seconds:
            seconds = min(seconds, 2 * self.update_seconds)  # one slow update must not end the run early
        return replace(
            self,
            step=self.step + 1,
            tokens=self.tokens + tokens,
            loss_sum=self.loss_sum + loss,
            loss_steps=self.loss_steps + 1,
            elapsed=now,
            update_seconds=self.update_seconds + (seconds - self.update_seconds) / min(max(1, self.step), RECENT),
        )

    @property
    def mean_loss(self) -> float:
        """Mean training loss since the last log line, in nats per token."""
        return self.loss_sum / self.loss_steps

    def after_log(self) -> TrainState:
        """After a log line: a new mean begins."""
        return replace(self, loss_sum=0.0, loss_steps=0)

    def after_eval(self, score: Score) -> TrainState:
        """After an evaluation at this step."""
        if self.best_loss is not None and score.loss >= self.best_loss:
            return replace(self, evaluations_since_best=self.evaluations_since_best + 1, evaluation_due=False)
        return replace(
            self,
            evaluation_due=False,
            best_step=self.step,
            best_loss=score.loss,
            best_bits_per_byte=score.bits_per_byte,
            evaluations_since_best=0,
        )

    def after_pause(self, evaluation: float, save: float) -> TrainState:
        """After an evaluation, a save or both; the seconds they took, 0 for what did not happen."""
        is_timed = evaluation > 0 and self.update_seconds > 0  # the first update is not
        return replace(
            self,
            elapsed=self.elapsed + evaluation + save,
            evaluation_updates=evaluation / self.update_seconds if is_timed else self.evaluation_updates,
            save_seconds=save or self.save_seconds,
        )

    @property
    def final_eval_seconds(self) -> float:
        """Seconds that the last evaluation and its checkpoint are expected to take."""
        return self.evaluation_updates * self.update_seconds + self.save_seconds

    @property
    def is_new_best(self) -> bool:
        """Whether the newest evaluation was made at this step and was the best so far."""
        return self.best_step == self.step

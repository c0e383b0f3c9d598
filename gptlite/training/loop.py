"""The training loop, top to bottom."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from gptlite.config.training import TrainSection
from gptlite.errors import Diverged
from gptlite.loggers.metrics import Listener, MetricLog
from gptlite.planning.epochs import EVALUATIONS, updates_per_evaluation
from gptlite.runs.run import Run
from gptlite.training.checkpointing import TrainState
from gptlite.training.diagnostics import UpdateRatio, measure_attention
from gptlite.training.signals import STOP, Signals
from gptlite.training.step import diverged, lr_at, train_step
from gptlite.training.throughput import Throughput
from gptlite.training.trainer import Trainer


def run_updates(
    trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener, signals: Signals
) -> TrainState:
    """Update until steps, minutes or patience run out; on the way log, evaluate and save what is due.

    Interrupted after a signal, with the state saved. Diverged where numbers are not finite: the last checkpoint stays.
    """
    cfg, dist = trainer.cfg, trainer.dist
    clock = clock_for(trainer, state.elapsed, signals.now)
    throughput = Throughput(trainer.model.cfg, trainer.scored_ids, trainer.compute, dist) if dist.is_main else None
    update_ratio = UpdateRatio(trainer.model)
    logged_step, update_seconds = state.step, 0.0  # since the last log line
    if state.evaluation_due:
        state = make_up_evaluation(trainer, run, state, log, listener, clock)
    evaluations = Evaluations(trainer, state)
    done = is_done(state, cfg.train)
    while not done:
        started_at = signals.now()
        eval_follows = evaluations.follow(state)
        log_follows = is_due(state.step + 1, cfg.log.every, state.step + 1 == cfg.train.updates)
        measured = update_ratio if log_follows else None
        stats = train_step(trainer, state.step, elapsed_fraction(state, cfg.train), measured)
        update_seconds += signals.now() - started_at
        state = state.after_update(stats.loss, trainer.tokens_per_update, clock())
        listener.progress(state.step, stats.loss)
        done = is_done(state, cfg.train)
        if is_due(state.step, cfg.log.every, done):
            values = {"loss": state.mean_loss, "lr": stats.lr, "grad_norm": stats.grad_norm, "tokens": state.tokens}
            tokens = (state.step - logged_step) * trainer.tokens_per_update
            speed = throughput.read(tokens, update_seconds) if throughput is not None else {}
            log.write(state.step, "train", {**values, **stats.more}, {"elapsed": state.elapsed, **speed})
            state, logged_step, update_seconds = state.after_log(), state.step, 0.0
        request = dist.largest(signals.take_request())
        eval_due = eval_follows or done
        if eval_due and request >= STOP:  # whoever stops us may not wait for an evaluation
            state = replace(state, evaluation_due=True)
        elif eval_due:
            state = evaluate_and_log(trainer, state, log)
            done = is_done(state, cfg.train)
            request = max(request, dist.largest(signals.take_request()))
        evaluated_at = clock() if eval_due else state.elapsed
        must_stop = request >= STOP
        save_due = is_due(state.step, cfg.save.every, done) or state.is_new_best or request > 0
        if save_due:
            save(trainer, run, state, log, listener)
        if must_stop and (state.evaluation_due or not done):
            raise signals.interrupted(request - STOP, f"stopped and saved after {describe_progress(state, cfg.train)}")
        if (eval_due or save_due) and not done:
            state = state.after_pause(evaluated_at - state.elapsed, clock() - evaluated_at if save_due else 0.0)
    return replace(state, elapsed=clock())


def save(
    trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener, *, again: bool = False
) -> None:
    """Save a checkpoint after everything that was logged. Diverged, with the old ones kept, for numbers not finite.

    again: over the checkpoint of this step.
    """
    if (name := trainer.find_non_finite()) is not None:
        raise diverged_at(state, trainer.cfg.train, f"{name} has values that are not finite")
    log.sync()
    trainer.save(run, state, log.ends, listener.say, replace=again)


def make_up_evaluation(
    trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener, clock: Callable[[], float]
) -> TrainState:
    """Make the evaluation that a signal came before, and save its result in place of the checkpoint without."""
    state = evaluate_and_log(trainer, state, log)
    evaluated_at = clock()
    save(trainer, run, state, log, listener, again=True)
    return state.after_pause(evaluated_at - state.elapsed, clock() - evaluated_at)


def save_initial(
    trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener, signals: Signals
) -> TrainState:
    """Before the first update: log a sample of the untrained model and the entropy of its attention, save a checkpoint.

    There is no evaluation: an untrained model's loss is about ln(vocab_size), and the first update would have to wait.
    But one that begins with the weights of another is evaluated, to see what its training brings.
    """
    clock, evaluated_at = clock_for(trainer, 0.0, signals.now), 0.0
    if trainer.cfg.train.from_ is not None:
        state, evaluated_at = evaluate_and_log(trainer, state, log), clock()
    else:
        if entropies := measure_attention(trainer)[0]:
            log.write(state.step, "val", {**entropies, "tokens": state.tokens}, {"elapsed": state.elapsed})
        log.log_sample(state.step, trainer.sample())
    save(trainer, run, state, log, listener)
    return replace(state, save_seconds=clock() - evaluated_at)


def evaluate_and_log(trainer: Trainer, state: TrainState, log: MetricLog) -> TrainState:
    """Evaluate, and log the score with a sample. Raise Diverged if the loss is not finite."""
    score = trainer.evaluate(trainer.validation)
    if not math.isfinite(score.loss):
        raise diverged_at(state, trainer.cfg.train, f"the validation loss is {score.loss}")
    values = {"loss": score.loss, "bits_per_byte": score.bits_per_byte, "perplexity": score.perplexity}
    if trainer.old_text is not None:
        values["old_bits_per_byte"] = trainer.evaluate(trainer.old_text).bits_per_byte
    entropies, images = measure_attention(trainer)
    log.write(state.step, "val", {**values, **entropies, "tokens": state.tokens}, {"elapsed": state.elapsed})
    log.log_sample(state.step, trainer.sample())
    for tag, image in images.items():
        log.log_image(state.step, tag, image)
    return state.after_eval(score)


def diverged_at(state: TrainState, cfg: TrainSection, what: str) -> Diverged:
    """Return the error for numbers that are not finite after an update."""
    lr = lr_at(state.step - 1, cfg, elapsed_fraction(state, cfg)) if state.step else None
    return diverged(state.step, what, lr, cfg)


def is_due(step: int, every: int, done: bool) -> bool:
    """Return whether something is due: every `every` steps, and at the end."""
    return step % every == 0 or done


def is_done(state: TrainState, cfg: TrainSection) -> bool:
    """Return whether steps or minutes have run out, or `patience` evaluations in a row brought no new best."""
    impatient = cfg.patience is not None and state.evaluations_since_best >= cfg.patience
    used_up = elapsed_fraction(state, cfg) == 1.0 if cfg.updates is None else state.step >= cfg.updates
    return used_up or impatient


def elapsed_fraction(state: TrainState, cfg: TrainSection) -> float | None:
    """Return how much of the time for updates has passed, in 0 .. 1; None where steps are counted.

    The last evaluation and its checkpoint come after that time.
    """
    if cfg.max_minutes is None:
        return None
    seconds = 60 * cfg.max_minutes - state.final_eval_seconds
    return min(1.0, state.elapsed / seconds) if seconds > 0 else 1.0


def describe_progress(state: TrainState, cfg: TrainSection) -> str:
    """Say how far training is: step 40 of 100; step 40, 0.5 of 3 minutes."""
    if cfg.max_minutes is None:
        return f"step {state.step} of {cfg.updates}"
    return f"step {state.step}, {state.elapsed / 60:.1f} of {cfg.max_minutes:g} minutes"


class Evaluations:
    """Decides which updates an evaluation follows: every eval.every; where the clock has left `auto`, when another one
    of EVALUATIONS parts of the time is over, and when the text was read EPOCHS_PER_EVALUATION times, as far as
    evaluations take no more than a fifth of the time."""

    def __init__(self, trainer: Trainer, state: TrainState) -> None:
        cfg, n_tokens = trainer.cfg, trainer.batches.n_tokens
        every = cfg.eval.every
        self._train_cfg, self._by_clock = cfg.train, every == "auto"
        self._every = every if isinstance(every, int) else updates_per_evaluation(cfg, n_tokens)
        self._part, self._newest = self._part_of(state), state.step

    def follow(self, state: TrainState) -> bool:
        """Return whether one follows the update after `state`. An end by the clock cannot be foreseen here."""
        step, part = state.step + 1, self._part_of(state)
        if not self._by_clock:
            return is_due(step, self._every, step == self._train_cfg.updates)
        is_new = part > self._part or step // self._every > self._newest // self._every
        if not is_new or step - self._newest < 4 * state.evaluation_updates:
            return False
        self._part, self._newest = part, step
        return True

    def _part_of(self, state: TrainState) -> int:
        return int(EVALUATIONS * (elapsed_fraction(state, self._train_cfg) or 0.0))


def clock_for(trainer: Trainer, so_far: float, now: Callable[[], float]) -> Callable[[], float]:
    """Return a clock of the seconds of training over all sessions; the main process's where it ends training."""
    zero, dist = now() - so_far, trainer.dist
    if trainer.cfg.train.max_minutes is None:
        return lambda: now() - zero
    return lambda: dist.number_of_main(now() - zero)

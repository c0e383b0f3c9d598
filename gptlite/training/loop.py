"""The training loop, top to bottom."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from gptlite.config.schema import RunConfig
from gptlite.loggers.metrics import Listener, MetricLog
from gptlite.runs.run import Run
from gptlite.training.checkpointing import TrainState, first_non_finite
from gptlite.training.diagnostics import UpdateRatio, measure_attention
from gptlite.training.sharing import gathered
from gptlite.training.signals import STOP, Signals
from gptlite.training.step import StepStats, diverged, train_step
from gptlite.training.throughput import Throughput
from gptlite.training.timing import Timing, clock_for
from gptlite.training.trainer import Trainer


def run_updates(
    trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener, signals: Signals, timing: Timing
) -> TrainState:
    """Update until steps, minutes or patience run out; on the way log, evaluate and save what is due.

    Interrupted after a signal, with the state saved. Diverged where numbers are not finite: the last checkpoint stays.
    """
    cfg, dist = trainer.cfg, trainer.dist
    clock = clock_for(trainer, state.elapsed, signals.now)
    throughput = Throughput(trainer.model.cfg, trainer.scored_ids, trainer.compute, dist) if dist.is_main else None
    update_ratio = UpdateRatio(trainer.model, dist)
    logged_step, update_seconds, unread = state.step, 0.0, deque[StepStats]()  # since the last log line
    done = timing.is_done(state)
    while not done:
        started_at = signals.now()
        eval_follows, fraction = timing.evaluation_follows(state), timing.fraction(state)
        log_follows = is_due(state.step + 1, cfg.log.every, state.step + 1 == cfg.train.updates)
        stats = train_step(trainer, state.step, fraction, update_ratio if log_follows else None)
        unread.append(stats)
        state = state.after_update(trainer.tokens_per_update, clock(), fraction)
        done = timing.is_done(state)
        log_due = is_due(state.step, cfg.log.every, done)
        eval_due = eval_follows or done
        state = read_losses(unread, 0 if log_due or eval_due else trainer.compute.updates_ahead, state, cfg)
        update_seconds += signals.now() - started_at
        listener.progress(state.step, None if unread else stats.loss)
        if log_due:
            tokens = (state.step - logged_step) * trainer.tokens_per_update
            log_updates(state, stats, log, {} if throughput is None else throughput.read(tokens, update_seconds))
            state, logged_step, update_seconds = state.after_log(), state.step, 0.0
        request = dist.largest(signals.take_request())
        if eval_due and request >= STOP:  # whoever stops us may not wait for an evaluation
            state = replace(state, evaluation_due=True)
        elif eval_due:
            state = evaluate_and_log(trainer, state, log)
            done = timing.is_done(state)
            request = max(request, dist.largest(signals.take_request()))
        evaluated_at = clock() if eval_due else state.elapsed
        save_due = is_due(state.step, cfg.save.every, done) or state.is_new_best or request > 0
        if save_due:
            state = read_losses(unread, 0, state, cfg)
            save(trainer, run, state, log, listener)
        if request >= STOP and (state.evaluation_due or not done):
            raise signals.interrupted(request - STOP, f"stopped and saved after step {state.step}")
        if (eval_due or save_due) and not done:
            state = state.after_pause(evaluated_at - state.elapsed, clock() - evaluated_at if save_due else 0.0)
    return replace(state, elapsed=clock())


def read_losses(unread: deque[StepStats], but: int, state: TrainState, cfg: RunConfig) -> TrainState:
    """Take the losses of all updates `but` the last few into the state. Diverged for the first that is not finite."""
    while len(unread) > but:
        stats = unread.popleft()
        stats.check_finite(cfg)
        state = state.with_loss(stats.loss)
    return state


def log_updates(state: TrainState, stats: StepStats, log: MetricLog, speed: Mapping[str, float]) -> None:
    """Log the updates since the last line: their mean loss, and what belongs to the newest one."""
    loss = state.loss_sum / state.loss_steps  # in nats per token
    values = {"loss": loss, "lr": stats.lr, "grad_norm": stats.grad_norm, "tokens": state.tokens}
    time = {"elapsed": state.elapsed, **speed}
    log.write(state.step, "train", {**values, **stats.more}, time, state.fractions)


def save(trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener) -> None:
    """Save a checkpoint after everything that was logged. Diverged, with the old ones kept, for numbers not finite."""
    if (name := first_non_finite(trainer.model, trainer.optimizers)) is not None:
        raise diverged(state.step, f"{name} has values that are not finite", trainer.cfg)
    log.sync()
    trainer.save(run, state, log.ends, listener.say)
    listener.event("checkpoint", {"step": state.step})


def make_up_evaluation(
    trainer: Trainer, run: Run, state: TrainState, log: MetricLog, listener: Listener, signals: Signals
) -> TrainState:
    """Make the evaluation that a signal came before, and save its result in place of the checkpoint without."""
    clock = clock_for(trainer, state.elapsed, signals.now)
    state = evaluate_and_log(trainer, state, log)
    evaluated_at = clock()
    save(trainer, run, state, log, listener)
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
    with gathered(trainer.objective):
        score = trainer.evaluate(trainer.validation)
        if not math.isfinite(score.loss):
            raise diverged(state.step, f"the validation loss is {score.loss}", trainer.cfg)
        values = {"loss": score.loss, "bits_per_byte": score.bits_per_byte, "perplexity": score.perplexity}
        if trainer.old_text is not None:
            values["old_bits_per_byte"] = trainer.evaluate(trainer.old_text).bits_per_byte
        entropies, images = measure_attention(trainer)
        sample = trainer.sample()
    log.write(state.step, "val", {**values, **entropies, "tokens": state.tokens}, {"elapsed": state.elapsed})
    log.log_sample(state.step, sample)
    for tag, image in images.items():
        log.log_image(state.step, tag, image)
    return state.after_eval(score)


def is_due(step: int, every: int, done: bool) -> bool:
    """Return whether something is due: every `every` steps, and at the end."""
    return step % every == 0 or done

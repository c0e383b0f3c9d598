"""The training loop, top to bottom."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.config.training import TrainSection
from gptlite.data.batches import Batches
from gptlite.inference.score import Score
from gptlite.loggers.media import Media
from gptlite.loggers.metrics import MetricLog
from gptlite.model.gpt import GPT
from gptlite.training.diagnostics import Diagnostics, UpdateRatio
from gptlite.training.optim.build import Optimizers
from gptlite.training.schedule import lr_at
from gptlite.training.signals import Signals
from gptlite.training.state import TrainState
from gptlite.training.step import diverged, train_step


@dataclass(frozen=True)
class Job:
    """All that training works with, decided before it starts."""

    cfg: RunConfig
    model: GPT
    optimizers: Optimizers
    batches: Batches
    compute: Compute
    dist: Dist
    evaluate: Callable[[], Score]  # on the whole validation split
    sample: Callable[[], str]  # a few words from the fixed prompt and seed
    pictures: Callable[[], Mapping[str, Media]]  # of the model at an evaluation, by tag
    save: Callable[[TrainState], None]
    progress: Callable[[int, float], None]  # told of every update: its step and loss
    meter: Callable[[int, float], Mapping[str, float]]  # figures of the machine, from tokens and the seconds they took


class Clock:
    """Seconds of training so far, over all sittings. Given `dist`, every process reads the main one's, together."""

    def __init__(self, so_far: float, dist: Dist | None) -> None:
        self._zero, self._dist = perf_counter() - so_far, dist

    def __call__(self) -> float:
        seconds = perf_counter() - self._zero
        return seconds if self._dist is None else self._dist.number_of_main(seconds)


def clock_of(job: Job, so_far: float) -> Clock:
    """Only where the clock decides do all processes have to agree on it, after every update."""
    return Clock(so_far, None if job.cfg.train.max_minutes is None else job.dist)


def due(step: int, every: int, done: bool) -> bool:
    """Whether what happens every so many steps happens after `step`; it also happens at the end."""
    return step % every == 0 or done


def elapsed_fraction(state: TrainState, cfg: TrainSection) -> float | None:
    """Under max_minutes, the share of the time for updates that is gone; the last evaluation and checkpoint come after
    it. None where updates are counted."""
    if cfg.max_minutes is None:
        return None
    seconds = 60 * cfg.max_minutes - state.final_eval_seconds
    return min(1.0, state.elapsed / seconds) if seconds > 0 else 1.0


def is_done(state: TrainState, cfg: TrainSection) -> bool:
    """Whether updates or minutes are used up, or `patience` evaluations in a row brought no new best."""
    impatient = cfg.patience is not None and state.evaluations_since_best >= cfg.patience
    used_up = elapsed_fraction(state, cfg) == 1.0 if cfg.updates is None else state.step >= cfg.updates
    return used_up or impatient


def describe_progress(state: TrainState, cfg: TrainSection) -> str:
    """How far training is: step 40 of 100; step 40, 0.5 of 3 minutes."""
    if cfg.max_minutes is None:
        return f"step {state.step} of {cfg.updates}"
    return f"step {state.step}, {state.elapsed / 60:.1f} of {cfg.max_minutes:g} minutes"


def save_initial(job: Job, state: TrainState, log: MetricLog) -> TrainState:
    """Before the first update: what the model writes while it knows nothing, and a checkpoint to go back to.

    No evaluation: it would make the first update wait, to find the surprise of a guess among all tokens.
    """
    clock = clock_of(job, 0.0)
    log.log_sample(state.step, job.sample())
    log.sync()
    job.save(state)
    return replace(state, save_seconds=clock())


def train(job: Job, state: TrainState, log: MetricLog, signals: Signals) -> TrainState:
    """Update until steps, minutes or patience end; log, evaluate and save what is due on the way.

    Interrupted, with the state saved, after a signal. Diverged before an update that is not finite: the last
    checkpoint stands.
    """
    cfg, tokens_per_update = job.cfg, job.cfg.train.batch_size * job.cfg.model.block_size
    clock = clock_of(job, state.elapsed)
    since, seconds = state.step, 0.0  # of updates alone, since the last log line
    movement = UpdateRatio(job.model)
    done = is_done(state, cfg.train)
    while not done:
        began_at, gone = perf_counter(), elapsed_fraction(state, cfg.train)
        watch = watched_in(state.step + 1, cfg, movement)
        stats = train_step(job.model, job.optimizers, job.batches, state.step, cfg, job.compute, job.dist, gone, watch)
        seconds += perf_counter() - began_at
        state = state.after_update(stats.loss, tokens_per_update, clock())
        job.progress(state.step, stats.loss)
        done = is_done(state, cfg.train)
        if due(state.step, cfg.log.every, done):
            values = {"loss": state.mean_loss, "lr": stats.lr, "grad_norm": stats.grad_norm, "tokens": state.tokens}
            measured = job.meter((state.step - since) * tokens_per_update, seconds)
            log.write(state.step, "train", {**values, **stats.more}, {"elapsed": state.elapsed, **measured})
            state, since, seconds = state.logged(), state.step, 0.0
        eval_due = due(state.step, cfg.eval.every, done)
        if eval_due:
            state = evaluate_and_log(job, state, log, stats.gradients)
            done = is_done(state, cfg.train)
        evaluated_at = clock() if eval_due else state.elapsed
        stopped_by = job.dist.largest(signals.received)
        save_due = due(state.step, cfg.save.every, done) or state.is_new_best or stopped_by > 0
        if save_due:
            log.sync()
            job.save(state)
        if stopped_by and not done:
            raise signals.interrupted(stopped_by, f"stopped and saved after {describe_progress(state, cfg.train)}")
        if (eval_due or save_due) and not done:
            state = state.after_pause(evaluated_at - state.elapsed, clock() - evaluated_at if save_due else 0.0)
    return replace(state, elapsed=clock())


def watched_in(step: int, cfg: RunConfig, movement: UpdateRatio) -> Diagnostics:
    """What to look at in the update after which `step` are done. Where the clock ends training, the last one comes as
    a surprise."""
    done = step == cfg.train.updates
    logs, eval_due = due(step, cfg.log.every, done), due(step, cfg.eval.every, done)
    return Diagnostics(movement if logs else None, logs and cfg.log.grad_norms, eval_due and cfg.log.histograms)


def evaluate_and_log(job: Job, state: TrainState, log: MetricLog, gradients: Mapping[str, Media]) -> TrainState:
    """Evaluate, and write down what the model writes by now. Diverged if the loss is not finite.

    gradients: histograms of the newest, where they are wanted.
    """
    score = job.evaluate()
    if not math.isfinite(score.loss):
        lr = lr_at(max(0, state.step - 1), job.cfg.train, elapsed_fraction(state, job.cfg.train))
        raise diverged(state.step, f"validation loss = {score.loss}", lr)
    values = {"loss": score.loss, "bits_per_byte": score.bits_per_byte, "perplexity": score.perplexity}
    log.write(state.step, "val", {**values, "tokens": state.tokens}, {"elapsed": state.elapsed})
    log.log_sample(state.step, job.sample())
    for tag, media in (*job.pictures().items(), *gradients.items()):
        log.log_media(state.step, tag, media)
    return state.after_eval(score)

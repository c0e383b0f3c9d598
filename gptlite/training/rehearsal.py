"""How long a run takes, from a few updates, a part of its evaluation, one sample and one checkpoint that are timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from gptlite.config.schema import RunConfig
from gptlite.data.batches import batch_of
from gptlite.data.tokens import Tokens
from gptlite.inference.load import Model
from gptlite.inference.score import extents_of, score
from gptlite.training.forecast import times_evaluated, times_saved

WARM_UP = 3  # updates that do not count: the heap grows, kernels are chosen
UPDATES, SECONDS = (5, 50), 3.0  # at least and at most; between them, as many as fit these seconds
EVALUATED = 6  # batches of the validation text; the first does not count


@dataclass(frozen=True)
class Times:
    """Seconds: of one update, one look at the validation text with its sample, one checkpoint."""

    update: float
    look: float
    save: float


def elapsed_of(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began_at = perf_counter()
    work()
    return perf_counter() - began_at


def time_of_update(update: Callable[[int], object]) -> float:
    """The median of a few. update: makes the one of this number."""
    for step in range(WARM_UP):
        update(step)
    times: list[float] = []
    while len(times) < UPDATES[0] or (len(times) < UPDATES[1] and sum(times) < SECONDS):
        times.append(elapsed_of(lambda: update(WARM_UP + len(times))))
    return statistics.median(times)


def time_of_evaluation(model: Model, split: Tokens, batch_size: int) -> float:
    """Of the whole split, from batches spread evenly over it: time grows with the tokens of a batch, fillers too."""
    windows = model.windows(split)
    plans = list(windows.batches(batch_size))
    tokens = [len(plan) * int(plan[:, 1].max()) for plan in plans]
    chosen = sorted({i * (len(plans) - 1) // (EVALUATED - 1) for i in range(EVALUATED)})
    extents = extents_of(model.tokenizer)

    def look(i: int) -> float:
        return elapsed_of(lambda: score(model.gpt, [batch_of(windows, plans[i])], extents, model.compute))

    look(chosen[0])
    seconds = sum(map(look, chosen))
    return seconds * sum(tokens) / sum(tokens[i] for i in chosen)


def updates_in(cfg: RunConfig, times: Times) -> int:
    """Updates of the run; under max_minutes as many as there is time for, looks and checkpoints included."""
    if cfg.train.updates is not None:
        return cfg.train.updates
    assert cfg.train.max_minutes is not None
    each = times.update + times.look / cfg.eval.every + times.save / min(cfg.eval.every, cfg.save.every)
    return max(1, int(60 * cfg.train.max_minutes / each))


def seconds_of(cfg: RunConfig, times: Times) -> float:
    """From the first update to the last checkpoint. The checkpoint before the first update is not part of it."""
    if cfg.train.max_minutes is not None:
        return 60 * cfg.train.max_minutes
    updates = updates_in(cfg, times)
    looks, saves = times_evaluated(cfg, updates), times_saved(cfg, updates) - 1
    return updates * times.update + looks * times.look + saves * times.save

"""How long a run takes, from a few updates, a part of its evaluation, one sample and one checkpoint that are timed."""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from gptlite.config.schema import RunConfig
from gptlite.data.batches import read_batch
from gptlite.data.eval_windows import WindowRows
from gptlite.data.tokens import Tokens
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.score import bytes_and_chars_per_token, score
from gptlite.planning.estimate import times_evaluated, times_saved
from gptlite.training.optim.build import muon_flops, update_flops

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


def time_of_evaluation(model: LanguageModel, split: Tokens, batch_size: int) -> float:
    """Of the whole split, from batches spread evenly over it: time grows with the tokens of a batch, fillers too."""
    windows = model.windows(split)
    plans = list(windows.batches(batch_size))
    tokens = [tokens_of(plan) for plan in plans]
    chosen = sorted({i * (len(plans) - 1) // (EVALUATED - 1) for i in range(EVALUATED)})
    extents = bytes_and_chars_per_token(model.tokenizer)

    def look(i: int) -> float:
        return elapsed_of(lambda: score(model.gpt, [read_batch(windows, plans[i])], extents, model.compute))

    look(chosen[0])
    seconds = sum(map(look, chosen))
    return seconds * sum(tokens) / sum(tokens[i] for i in chosen)


def tokens_of(plan: WindowRows) -> int:
    """Of a batch of windows, fillers too."""
    return len(plan) * int(plan[:, 1].max())


def evaluation_in_updates(cfg: RunConfig, model: LanguageModel, split: Tokens) -> float:
    """How many updates an evaluation takes as long as, by arithmetic: a third of what it would take to train on these
    tokens, since they only go forward. cfg: without `auto`."""
    tokens = sum(tokens_of(plan) for plan in model.windows(split).batches(cfg.eval.batch_size))
    by_muon = muon_flops(model.gpt) if cfg.train.optimizer == "muon" else 0
    update = update_flops(model.gpt, cfg.train.batch_size * cfg.model.block_size) + by_muon
    return update_flops(model.gpt, tokens) / 3 / update


def updates_in(cfg: RunConfig, times: Times) -> int:
    """Updates of the run; under max_minutes as many as there is time for, evaluations and checkpoints included."""
    if cfg.train.updates is not None:
        return cfg.train.updates
    assert cfg.train.max_minutes is not None
    seconds = 60 * cfg.train.max_minutes
    most = 1 + int(seconds / times.update)
    return max(1, bisect.bisect(range(1, most + 1), seconds, key=lambda updates: time_of(cfg, times, updates)))


def seconds_of(cfg: RunConfig, times: Times) -> float:
    """From the first update to the last checkpoint."""
    if cfg.train.max_minutes is not None:
        return 60 * cfg.train.max_minutes
    return time_of(cfg, times, updates_in(cfg, times))


def time_of(cfg: RunConfig, times: Times, updates: int) -> float:
    """Seconds of so many updates with their evaluations and checkpoints, but for the checkpoint before the first."""
    looks, saves = times_evaluated(cfg, updates), times_saved(cfg, updates) - 1
    return updates * times.update + looks * times.look + saves * times.save

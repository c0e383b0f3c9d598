"""One sitting of a run: everything is built from its config, then trained. Only the main process writes."""

from __future__ import annotations

import dataclasses
import functools
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from gptlite.compute.compiling import choose_compile
from gptlite.compute.device import Compute, resolve, settings
from gptlite.compute.distributed import Dist
from gptlite.compute.matmul_flops import slow_precision
from gptlite.compute.memory import resident_bytes
from gptlite.compute.openmp import waiting_reason
from gptlite.compute.processes import local_rank, world_size
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.data.batches import Batches
from gptlite.data.prepared import Prepared
from gptlite.data.tokens import Tokens
from gptlite.errors import ConfigError, RunError, located
from gptlite.formatting import counted
from gptlite.inference.language_model import LanguageModel, ModelInfo
from gptlite.inference.sampling import SamplingParams
from gptlite.inference.score import Score
from gptlite.loggers.metrics import MetricLog
from gptlite.model.gpt import GPT
from gptlite.model.sizes import feed_forward_flops
from gptlite.runs.checkpoint import Checkpoint, prune, save_checkpoint, write_pointer
from gptlite.runs.find import find_latest
from gptlite.runs.run import Run
from gptlite.training.checkpointing import Identity, files_of, restore, tensors_of
from gptlite.training.eval_media import pictures
from gptlite.training.listener import Listener
from gptlite.training.logging_setup import open_log
from gptlite.training.loop import Job, is_done, save_initial, train
from gptlite.training.optim.build import Optimizers, build_optimizers, choose_optimizer
from gptlite.training.outlook import look_ahead
from gptlite.training.rehearsal import evaluation_in_updates
from gptlite.training.run_info import description, reasons_so_far
from gptlite.training.schedule import choose_lr
from gptlite.training.signals import Signals
from gptlite.training.state import TrainState
from gptlite.training.step import choose_micro_batch_size
from gptlite.training.throughput import Throughput

SAMPLE_CHARACTERS = 60
SAMPLE_SEED = 0


@dataclass(frozen=True)
class Setup:
    """A run with every `auto` decided, the reasons, and what it will train."""

    cfg: RunConfig
    compute: Compute
    dist: Dist
    model: GPT
    optimizers: Optimizers
    reasons: Sequence[str]

    def __str__(self) -> str:
        """The choices on one line."""
        run, train = self.cfg.run, self.cfg.train
        words = [
            run.device,
            run.precision,
            f"{run.attention} attention",
            "compiled" if run.compile else "",
            f"{self.dist.world_size} processes" if self.dist.world_size > 1 else "",
            counted(self.compute.threads, "thread"),
            train.optimizer,
            f"lr {train.lr}",
            f"{train.micro_batch_size} sequences a pass",
        ]
        return f"{', '.join(filter(None, words))}; reasons in run.json"


def decide(cfg: RunConfig, vocab_size: int) -> Setup:
    """Replace every `auto`, meet the other processes, build the model (the same for a seed on every device)."""
    product = feed_forward_flops(cfg.model, cfg.train.batch_size * cfg.model.block_size / world_size())
    compute = resolve(cfg.run, cfg.model.block_size, local_rank=local_rank(), product=product)
    dist = Dist.from_environment(compute.device)
    compiled, why_compiled = choose_compile(cfg.run.compile, compute.device)
    rng = torch.Generator().manual_seed(cfg.run.seed)
    model = GPT(cfg.model, vocab_size, attention=compute.attention, rng=rng)
    optimizer, why_optimizer = choose_optimizer(model, cfg)
    cfg = cfg.with_values({**compute.values(), "run.compile": compiled, "train.optimizer": optimizer})
    lr, why_lr = choose_lr(cfg)
    micro, why_micro = choose_micro_batch_size(cfg, compute, dist.world_size)
    cfg = cfg.with_values({"train.lr": lr, "train.micro_batch_size": micro})
    model = model.to(compute.device)
    if compiled:
        model.compile()
    optimizers = build_optimizers(model, cfg.train, compute)
    reasons = (*compute.reasons, waiting_reason(), why_compiled, why_optimizer, why_lr, why_micro)
    return Setup(cfg, compute, dist, model, optimizers, reasons)


@contextmanager
def memory_errors(cfg: RunConfig) -> Iterator[None]:
    """A model or batch that does not fit is the user's to mend; torch has several ways to say so."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        raise ConfigError(
            f"memory = full: {cfg.model.n_layer} layers of {cfg.model.n_embd} and {cfg.train.micro_batch_size} "
            f"sequences of {cfg.model.block_size} a pass do not fit; lower train.micro_batch_size or the model's size"
        ) from error


def decided(cfg: RunConfig, prepared: Prepared) -> Setup:
    """The plan of a run on a text. ConfigError or DataError where it cannot be carried out."""
    with memory_errors(cfg):
        plan = decide(cfg, prepared.manifest.tokenizer.vocab_size)
    with located("eval.prompt"):  # an unknown character is found here, or at every evaluation
        model_of(plan, prepared).encode(cfg.eval.prompt)
    return plan


def begin(cfg: RunConfig, prepared: Prepared, create: Callable[[], Run], terminal: Listener) -> tuple[Run, TrainState]:
    """Train a new run. Its folder is made when nothing can be refused any more."""
    libraries = resident_bytes()
    plan = decided(cfg, prepared)
    run = Run(Path(plan.dist.from_main(str(create().path) if plan.dist.is_main else "")))
    with run.lock() if plan.dist.is_main else nullcontext():
        if plan.dist.is_main:
            if run.started:
                raise RunError(f"run {run.name}: start = taken: another process was faster; give the command again")
            run.write_info(description(plan, prepared))
            run.write_config(dump_config(plan.cfg))
            for line in look_ahead(plan.cfg, plan.compute, plan.dist, prepared, libraries).lines():
                terminal.say(line)
        return run, sit(plan, prepared, run, None, terminal)


def go_on(cfg: RunConfig, prepared: Prepared, run: Run, terminal: Listener) -> TrainState:
    """Train an existing run from its newest valid checkpoint, from the beginning where it has none. It is locked.

    With another number of processes the rows of each are cut up anew; the batches stay the same.
    """
    if run.recorded("world_size", int) != world_size():
        cfg = cfg.with_values({"train.micro_batch_size": "auto"})
    plan = decided(cfg, prepared)
    checkpoint = find_latest(run.checkpoints, terminal.say)
    plan.dist.barrier()  # every process has read before the main one tidies
    if plan.dist.is_main:
        run.remove_leftovers()
        now = {key: value for key, value in description(plan, prepared).items() if key not in ("argv", "git_commit")}
        now["reasons"] = reasons_so_far(run.recorded("reasons", list), plan.reasons)
        run.write_info({**run.info, **now, "resumed_by": sys.argv})
        run.write_config(dump_config(plan.cfg))
    return sit(plan, prepared, run, checkpoint, terminal)


def model_of(plan: Setup, prepared: Prepared) -> LanguageModel:
    """The model in training, as sampling and scoring use it."""
    info = ModelInfo(plan.cfg.model, prepared.manifest.start_id, plan.cfg.data.normalize)
    return LanguageModel(plan.model, prepared.tokenizer(), info, plan.compute)


def check_length(state: TrainState, cfg: RunConfig) -> None:
    """ConfigError for a run that is asked to end before where it is."""
    if cfg.train.updates is not None and cfg.train.updates < state.step:
        raise ConfigError(
            f"train.max_steps = {cfg.train.updates}: at least {state.step}, which the run has done; give more"
        )


def sit(plan: Setup, prepared: Prepared, run: Run, checkpoint: Checkpoint | None, terminal: Listener) -> TrainState:
    """Train to the end, from `checkpoint` if there is one, and say in the run's folder that it is finished."""
    terminal.say(str(plan))
    for line in slow_precision(plan.compute):
        terminal.say(line)
    if plan.cfg.train.max_minutes is not None:
        terminal.say("train.max_minutes: the clock says where this run ends; resumed, it does not repeat bit for bit")
    cfg, model = plan.cfg, model_of(plan, prepared)
    identity = Identity(prepared.manifest.tokenizer.fingerprint, prepared.manifest.fingerprint, cfg.train.optimizer)
    state = TrainState()
    if checkpoint is None and cfg.train.max_minutes is not None:
        state = TrainState(evaluation_updates=evaluation_in_updates(cfg, model, prepared.split("val")))
    if checkpoint is not None:
        state = restore(checkpoint, plan.model, plan.optimizers, identity, cfg)
        check_length(state, cfg)
        if is_done(state, cfg.train):
            length = "max_steps" if cfg.train.max_minutes is None else "max_minutes"
            terminal.say(
                f"{run.name} came to its end after update {state.step}; to go further, give --set train.{length}=N"
            )
    if plan.dist.is_main and not is_done(state, cfg.train):
        run.reopen()
    signals = Signals(f"run {run.name}", f"gptlite train --resume {shlex.quote(run.handle)}", terminal.say_at_once)
    deterministic = settings(plan.compute, deterministic=cfg.run.deterministic)
    noting = run.noting_divergence() if plan.dist.is_main else nullcontext()
    reached = None if checkpoint is None else state
    logging = open_log(cfg, prepared.manifest, run, reached, terminal) if plan.dist.is_main else MetricLog.silent()
    with (
        memory_errors(cfg),
        signals.watched(),
        deterministic,
        noting,
        logging as log,
    ):
        job = job_of(plan, prepared, run, model, identity, terminal)
        if checkpoint is None:
            state = save_initial(job, state, log)
        state = train(job, state, log, signals)
    if plan.dist.is_main:
        run.finish({"step": state.step, "best_step": state.best_step, "best_bits_per_byte": state.best_bits_per_byte})
    plan.dist.close()
    return state


def job_of(
    plan: Setup, prepared: Prepared, run: Run, model: LanguageModel, identity: Identity, terminal: Listener
) -> Job:
    """All that training works with. The peak of the machine is measured here, under the settings of the run."""
    cfg = plan.cfg
    train_split = prepared.split("train")
    return Job(
        cfg,
        plan.model,
        plan.optimizers,
        Batches(train_split, cfg.model.block_size, cfg.train.batch_size, cfg.run.seed, cfg.data.order),
        plan.compute,
        plan.dist,
        evaluate=functools.partial(evaluate, model, prepared.split("val"), cfg.eval.batch_size, plan.dist),
        sample=functools.partial(sample, model, cfg),
        pictures=functools.partial(pictures, model, cfg, prepared.split("val"), plan.dist),
        save=functools.partial(save, run, plan, model, identity, terminal.say),
        progress=terminal.progress,
        meter=Throughput(plan.model, plan.compute, plan.dist).read if plan.dist.is_main else lambda *_: {},
    )


def save(
    run: Run,
    plan: Setup,
    model: LanguageModel,
    identity: Identity,
    say: Callable[[str], None],
    state: TrainState,
) -> None:
    """Write a checkpoint, point at it, and only then remove old ones: a valid one is there at every instant."""
    if plan.dist.is_main:
        files = files_of(model, identity, state)
        tensors = tensors_of(plan.model, plan.optimizers)
        loss = state.best_loss if state.is_new_best else None
        save_checkpoint(run.checkpoints, state.step, files, tensors, score=loss)
        write_pointer(run.checkpoints, "latest", state.step)
        if state.is_new_best:
            write_pointer(run.checkpoints, "best", state.step, {"loss": state.best_loss})
        protected = [] if state.best_step is None else [state.best_step]
        prune(run.checkpoints, plan.cfg.save.keep, protected, newest=state.step, warn=say)
    plan.dist.barrier()


def evaluate(model: LanguageModel, split: Tokens, batch_size: int, dist: Dist) -> Score:
    """The score of the whole split, its batches shared by the processes."""
    part = model.score_tokens(split, batch_size=batch_size, first=dist.rank, every=dist.world_size)
    nats, *counts = dist.sum_numbers(dataclasses.astuple(part))
    return Score(nats, *map(int, counts))


def sample(model: LanguageModel, cfg: RunConfig) -> str:
    """What the model adds to the fixed prompt with the fixed seed, up to SAMPLE_CHARACTERS characters."""
    how = SamplingParams(max_new_tokens=SAMPLE_CHARACTERS, temperature=cfg.sample.temperature)
    written = next(model.samples(cfg.eval.prompt, how, seed=SAMPLE_SEED))
    for _ in written:
        if len(written.text) >= SAMPLE_CHARACTERS:
            break
    return written.text[:SAMPLE_CHARACTERS]

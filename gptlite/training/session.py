"""One sitting of a run: everything is built from its config, then trained. Only the main process writes."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gptlite import __version__
from gptlite.compute.device import Compute, resolve, settings
from gptlite.compute.distributed import Dist, local_rank, world_size
from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.data.batches import Batches, eval_windows
from gptlite.data.prepared import Prepared
from gptlite.inference.generate import Decoding
from gptlite.inference.load import Facts, Model
from gptlite.inference.score import Score, bytes_per_token, score
from gptlite.model.gpt import GPT
from gptlite.runs.checkpoint import Checkpoint, prune, save_checkpoint, write_pointer
from gptlite.runs.choosing import latest
from gptlite.runs.metrics import MetricLog, Sink
from gptlite.runs.rundir import Run
from gptlite.runs.tensorboard import TensorBoardSink
from gptlite.tokenizers.base import Tokenizer
from gptlite.training.loop import Job, Signals, train
from gptlite.training.optim import Optimizers, build_optimizers, choose_optimizer
from gptlite.training.saving import Identity, files_of, restore, tensors_of
from gptlite.training.state import TrainState
from gptlite.training.step import choose_micro_batch_size
from gptlite.training.terminal import Terminal

SAMPLE_CHARACTERS = 60
SAMPLE_SEED = 0


@dataclass(frozen=True)
class Plan:
    """A run with every `auto` decided, the reasons, and what it will train."""

    cfg: RunConfig
    compute: Compute
    dist: Dist
    model: GPT
    optimizers: Optimizers
    reasons: Sequence[str]


def decide(cfg: RunConfig, vocab_size: int) -> Plan:
    """Replace every `auto`, meet the other processes, build the model (the same for a seed on every device)."""
    compute = resolve(cfg.run, local_rank=local_rank())
    dist = Dist.from_environment(compute.device)
    rng = torch.Generator().manual_seed(cfg.run.seed)
    model = GPT(cfg.model, vocab_size, attention=compute.attention, rng=rng)
    optimizer, why_optimizer = choose_optimizer(model, cfg)
    micro, why_micro = choose_micro_batch_size(cfg, compute, dist.world_size)
    choices = {**compute.values(), "train.optimizer": optimizer, "train.micro_batch_size": micro}
    cfg = cfg.with_values(choices)
    model = model.to(compute.device)
    if cfg.run.compile:
        model.compile()
    optimizers = build_optimizers(model, cfg.train, compute)
    return Plan(cfg, compute, dist, model, optimizers, (*compute.reasons, why_optimizer, why_micro))


def begin(cfg: RunConfig, prepared: Prepared, create: Callable[[], Run], terminal: Terminal) -> tuple[Run, TrainState]:
    """Train a new run. Its folder is made when nothing can be refused any more."""
    plan = decide(cfg, prepared.manifest.tokenizer.vocab_size)
    run = Run(Path(plan.dist.from_main(str(create().path) if plan.dist.is_main else "")))
    with run.lock() if plan.dist.is_main else nullcontext():
        if plan.dist.is_main:
            run.write_info(description(plan, prepared))
            run.write_config(dump_config(plan.cfg))
        return run, sit(plan, prepared, run, None, terminal)


def go_on(cfg: RunConfig, prepared: Prepared, run: Run, terminal: Terminal) -> TrainState:
    """Train an existing run from its newest valid checkpoint, from the beginning where it has none. It is locked.

    With another number of processes the rows of each are cut up anew; the batches stay the same.
    """
    if run.info["world_size"] != world_size():
        cfg = cfg.with_values({"train.micro_batch_size": "auto"})
    plan = decide(cfg, prepared.manifest.tokenizer.vocab_size)
    checkpoint = latest(run.checkpoints, terminal.say)
    plan.dist.barrier()  # every process has read before the main one tidies
    if plan.dist.is_main:
        run.remove_leftovers()
        run.write_info({**run.info, "world_size": plan.dist.world_size})
        run.write_config(dump_config(plan.cfg))
    return sit(plan, prepared, run, checkpoint, terminal)


def description(plan: Plan, prepared: Prepared) -> dict[str, Any]:
    """run.json: what made the run, so that it can be understood later."""
    packages = ("torch", "numpy", "tiktoken", "safetensors")
    versions = {name: importlib.metadata.version(name) for name in packages}
    return {
        "versions": {"gptlite": __version__, "python": platform.python_version(), **versions},
        "git_commit": git_commit(),
        "argv": sys.argv,
        "host": platform.node(),
        "device": plan.cfg.run.device,
        "world_size": plan.dist.world_size,
        "threads": plan.cfg.run.threads,
        "reasons": list(plan.reasons),
        "parameters": plan.model.n_parameters(),
        "prepared": str(prepared.path.absolute()),
    }


def git_commit() -> str | None:
    """The commit of the folder we are called in; None where it is in no repository."""
    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no git: a fact about the machine, not a failure of the run
        return None
    return asked.stdout.strip() or None


def sit(plan: Plan, prepared: Prepared, run: Run, checkpoint: Checkpoint | None, terminal: Terminal) -> TrainState:
    """Train to the end, from `checkpoint` if there is one, and say in the run's folder that it is finished."""
    cfg, tokenizer = plan.cfg, prepared.tokenizer()
    facts = Facts(cfg.model, prepared.manifest.start_id, cfg.data.normalize)
    identity = Identity(prepared.manifest.tokenizer.fingerprint, prepared.manifest.fingerprint, cfg.train.optimizer)
    state, resume_step = TrainState(), None
    if checkpoint is not None:
        state = restore(checkpoint, plan.model, plan.optimizers, identity, cfg)
        resume_step = state.step
    train_split = prepared.split("train")
    job = Job(
        run.name,
        cfg,
        plan.model,
        plan.optimizers,
        Batches(train_split, cfg.model.block_size, cfg.train.batch_size, cfg.run.seed, cfg.data.order),
        plan.compute,
        plan.dist,
        evaluate=evaluator(plan, prepared, tokenizer),
        sample=sampler(plan, tokenizer, facts),
        save=functools.partial(save, run, plan, tokenizer, facts, identity, terminal.say),
        progress=terminal.progress,
    )
    signals = Signals()
    deterministic = settings(plan.compute, deterministic=cfg.run.deterministic)
    with signals.watched(), deterministic, open_log(plan, run, resume_step, terminal) as log:
        state = train(job, state, log, signals)
    if plan.dist.is_main:
        run.finish({"step": state.step, "best_step": state.best_step, "best_bits_per_byte": state.best_bits_per_byte})
    plan.dist.close()
    return state


def open_log(plan: Plan, run: Run, resume_step: int | None, terminal: Terminal) -> MetricLog:
    """The files and the terminal of the main process; nothing for the others."""
    if not plan.dist.is_main:
        return MetricLog.silent()
    extras: list[Sink] = list(terminal.begin(plan.cfg.train.max_steps, resume_step or 0))
    if plan.cfg.log.tensorboard:
        extras.append(TensorBoardSink(run.path / "tb", resume_step, config=dump_config(plan.cfg)))
    return MetricLog.open(run.path, resume_step=resume_step, extras=extras, warn=terminal.say)


def save(
    run: Run,
    plan: Plan,
    tokenizer: Tokenizer,
    facts: Facts,
    identity: Identity,
    say: Callable[[str], None],
    state: TrainState,
) -> None:
    """Write a checkpoint, point at it, and only then remove old ones: a valid one is there at every instant."""
    if plan.dist.is_main:
        files = files_of(plan.model, tokenizer, facts, identity, state)
        tensors = tensors_of(plan.model, plan.optimizers)
        loss = state.best_loss if state.is_new_best else None
        save_checkpoint(run.checkpoints, state.step, files, tensors, score=loss)
        write_pointer(run.checkpoints, "latest", state.step)
        if state.is_new_best:
            write_pointer(run.checkpoints, "best", state.step, {"loss": state.best_loss})
        protected = [] if state.best_step is None else [state.best_step]
        prune(run.checkpoints, plan.cfg.save.keep, protected, newest=state.step, warn=say)
    plan.dist.barrier()


def evaluator(plan: Plan, prepared: Prepared, tokenizer: Tokenizer) -> Callable[[], Score]:
    """Scores the whole validation split, its windows in fixed order and shared by the processes."""
    lengths = bytes_per_token(tokenizer)
    cfg, dist = plan.cfg, plan.dist

    def evaluate() -> Score:
        windows = eval_windows(prepared.split("val"), cfg.model.block_size, cfg.eval.batch_size)
        ours = (window for i, window in enumerate(windows) if i % dist.world_size == dist.rank)
        part = score(plan.model, ours, lengths, plan.compute)
        whole = torch.tensor([part.nats, part.tokens, part.bytes], dtype=torch.float64, device=plan.compute.device)
        nats, tokens, text_bytes = dist.sum(whole).tolist()
        return Score(nats, int(tokens), int(text_bytes))

    return evaluate


def sampler(plan: Plan, tokenizer: Tokenizer, facts: Facts) -> Callable[[], str]:
    """Writes the same number of characters from the same prompt and seed each time it is called."""
    model = Model(plan.model, tokenizer, facts, plan.compute)
    how = Decoding(max_new_tokens=SAMPLE_CHARACTERS, temperature=plan.cfg.sample.temperature)
    prompt = plan.cfg.eval.prompt

    def sample() -> str:
        added = ""
        for piece in model.stream(prompt, how, seed=SAMPLE_SEED):
            added += piece
            if len(added) >= SAMPLE_CHARACTERS:
                break
        return prompt + added[:SAMPLE_CHARACTERS]

    return sample

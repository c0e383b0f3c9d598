"""Trainer: everything that one run trains with, how it is built, and what it does besides updates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from gptlite.compute.device import Compute, Hardware
from gptlite.compute.distributed import Dist, check_same, gather
from gptlite.compute.processes import world_size
from gptlite.config.schema import RunConfig
from gptlite.config.training import SampleSection
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.dataset.tokens import Tokens, count_ids
from gptlite.errors import ConfigError, located
from gptlite.formatting import Say
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.score import Score
from gptlite.loggers.metrics import LogEnd
from gptlite.model.gpt import GPT
from gptlite.model.sampled_softmax import VocabSampler
from gptlite.planning.auto import Setup, resolve
from gptlite.planning.plan import advise_less_memory
from gptlite.runs.checkpoint import prune, save_checkpoint, write_pointer
from gptlite.runs.run import Run
from gptlite.tokenizers.base import Tokenizer
from gptlite.training.checkpointing import TrainState, checkpoint_files, checkpoint_tensors
from gptlite.training.ngram_teacher import NgramTeacher
from gptlite.training.objective import Objective
from gptlite.training.optim.build import Optimizers, build_optimizers
from gptlite.training.reconcile import deciding_values, facts_of_process

SAMPLE_CHARACTERS = 60
SAMPLE_SEED = 0


@dataclass(frozen=True)
class Trainer:
    """The parts that `build` in training/trainer.py makes from a resolved config and a prepared text."""

    cfg: RunConfig  # without `auto`
    model: GPT
    objective: torch.nn.Module  # an Objective, perhaps shared: (x, y, drawn, replaced_fraction) -> two sums
    vocab_sampler: VocabSampler | None  # where train.vocab_sample asks for one
    teacher: NgramTeacher | None  # where train.ngram_teacher asks for one
    optimizers: Optimizers
    scaler: torch.amp.GradScaler  # of the loss in fp16, whose smallest numbers gradients would fall below
    batches: Batches
    compute: Compute
    dist: Dist
    validation: Tokens
    language_model: LanguageModel  # the same model with its tokenizer, as sampling and scoring use it
    deciding: Mapping[str, Any]  # the values that a checkpoint must share with the run that resumes from it
    old_text: Tokens | None = None  # what the source of train.from was validated on

    @property
    def tokens_per_update(self) -> int:
        """Over all processes."""
        return self.cfg.train.batch_size * self.cfg.model.block_size

    @property
    def scored_ids(self) -> int:
        """Ids of which an update computes the logits."""
        sample = self.cfg.train.vocab_sample
        assert sample != "auto", "resolve comes first"
        return self.model.vocab_size if sample is None else int(sample)

    def evaluate(self, tokens: Tokens) -> Score:
        """Score a whole text and its blocks; the processes share its batches."""
        part = self.language_model.score_blocks(
            tokens, batch_size=self.cfg.eval.batch_size, first=self.dist.rank, every=self.dist.world_size
        )
        blocks = np.reshape(self.dist.sum_numbers(part.ravel().tolist()), part.shape)
        sizes = ((nats, int(n_bytes)) for nats, n_tokens, n_bytes, _ in blocks.tolist() if n_tokens)
        return Score.of(blocks.sum(0), tuple(sizes))

    def sample(self) -> str:
        """Write up to SAMPLE_CHARACTERS characters that continue `eval.prompt`, always with the same seed.

        Of a model that cannot write, the reason.
        """
        if self.cfg.model.sees_ahead:
            return "(no sample: without a mask the model cannot write)"
        temperature = self.cfg.sample.temperature
        params = SampleSection(max_new_tokens=SAMPLE_CHARACTERS, temperature=temperature, seed=SAMPLE_SEED)
        sample = next(self.language_model.samples(self.cfg.eval.prompt, params))
        for _ in sample:
            if len(sample.text) >= SAMPLE_CHARACTERS:
                break
        return sample.text[:SAMPLE_CHARACTERS]

    def save(self, run: Run, state: TrainState, logs: Mapping[str, LogEnd], warn: Say) -> None:
        """Write a checkpoint, point to it, and only then remove old ones: there is a valid one at every instant.

        It takes the place of one of this step, which may have been made before its evaluation. logs: how far they are.
        """
        if self.dist.is_main or self.cfg.run.parallel == "fsdp":  # every process gives its parts
            tensors = checkpoint_tensors(self.model, self.optimizers, keep=self.dist.is_main)
        if self.dist.is_main:
            files = checkpoint_files(self.language_model, self.deciding, state, logs, self.scaler)
            loss = state.best_loss if state.is_new_best else None
            save_checkpoint(run.checkpoints, state.step, files, tensors, score=loss, replace=True)
            write_pointer(run.checkpoints, "latest", state.step)
            if state.is_new_best:
                write_pointer(run.checkpoints, "best", state.step, {"loss": state.best_loss})
            if not state.evaluation_due:  # this checkpoint will be replaced, and another one must exist meanwhile
                prune(run.checkpoints, self.cfg.save.keep, newest=state.step, say=warn)
        gather(None)  # no process goes on before it is there


def resolve_here(cfg: RunConfig, prepared: Prepared) -> Setup:
    """Call `resolve` for this machine, this process and the vocabulary of a prepared text.

    ConfigError where other processes of the run come to something else.
    """
    tokenizer, train = prepared.manifest.tokenizer, prepared.manifest.train
    setup = resolve(cfg, tokenizer.vocab_size, train.tokens, Hardware.detect(), world_size())
    check_same(facts_of_process(setup.cfg, tokenizer=tokenizer.fingerprint[:12]))
    return setup


def build(cfg: RunConfig, prepared: Prepared) -> Trainer:
    """Join the other processes and make everything that a resolved config trains with on a prepared text.

    ConfigError where the memory does not suffice, DataError where `eval.prompt` has characters that the tokenizer does
    not know.
    """
    manifest = prepared.manifest
    fingerprints = {"tokenizer": manifest.tokenizer.fingerprint, "text": manifest.fingerprint}
    train, validation = prepared.split("train"), prepared.split("val")
    trainer = assemble(cfg, prepared.tokenizer(), train, validation, manifest.start_id, fingerprints)
    with located("eval.prompt"):
        trainer.language_model.encode(cfg.eval.prompt)
    return trainer


def begin(trainer: Trainer, say: Say, *, has_weights: bool = False) -> Trainer:
    """Return the trainer of a run with train.from: with the text that its source was validated on, if there is one.

    The model gets the weights of the source unless it has those of a checkpoint. UserError where it cannot, ConfigError
    where the processes read different ones.
    """
    cfg, model, tokenizer = trainer.cfg, trainer.model, trainer.language_model.tokenizer
    if cfg.train.from_ is None:
        return trainer
    from gptlite.interop.source import read_old_text, take_weights  # needed by no other run

    if not has_weights:
        with memory_errors(cfg):
            say(take_weights(cfg, model, tokenizer))
    old_text = read_old_text(cfg, tokenizer, trainer.validation.n_tokens, say)
    if world_size() > 1:
        weights = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
        check_same({"the sum of the weights": str(weights), "the text of train.from": str(old_text is not None)})
    return dataclasses.replace(trainer, old_text=old_text)


def assemble(
    cfg: RunConfig,
    tokenizer: Tokenizer,
    train: Tokens,
    validation: Tokens,
    start_id: int = 0,
    fingerprints: Mapping[str, str] = MappingProxyType({}),
) -> Trainer:
    """Build from parts. The parameters are initialised from the seed on the CPU: the same on every device."""
    compute = Compute.of(cfg.run)
    dist = Dist.from_environment(compute.device)
    with memory_errors(cfg):
        rng = torch.Generator().manual_seed(cfg.run.seed)
        recomputes = cfg.run.checkpoint_activations
        model = GPT(cfg.model, tokenizer.vocab_size, attention=compute.attention, rng=rng, recomputes=recomputes).to(
            compute.device
        )
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not cfg.train.freezes(name))
        # Only training computes the same shapes again and again.
        hidden = torch.compile(model.hidden, dynamic=False) if cfg.run.compile else model.hidden
        objective = Objective(model, hidden, compute, cfg.train)
        optimizers = build_optimizers(model, cfg.train, compute)
        scaler = torch.amp.GradScaler(compute.device.type, enabled=compute.precision == "fp16")
    batches = Batches(train, cfg.model.block_size, cfg.train.batch_size, cfg.run.seed, cfg.data.order)
    language_model = LanguageModel(model, tokenizer, start_id, cfg.data.normalize, compute)
    sample = cfg.train.vocab_sample
    sampler = VocabSampler(count_ids(train, tokenizer.vocab_size), sample) if isinstance(sample, int) else None
    teacher = None
    if cfg.train.ngram_teacher > 0.0:
        texts = [tokenizer.decode([i]) for i in range(tokenizer.vocab_size)]
        teacher = NgramTeacher(train.read(0, train.n_tokens).astype(np.int64), texts)
    deciding = {**deciding_values(cfg), **fingerprints}
    return Trainer(
        *(cfg, model, objective, sampler, teacher, optimizers, scaler),
        *(batches, compute, dist, validation, language_model, deciding),
    )


@contextmanager
def memory_errors(cfg: RunConfig) -> Iterator[None]:
    """Turn the ways in which Python and torch run out of memory into a ConfigError, which says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        full = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not full and "allocate memory" not in str(error):
            raise
        raise ConfigError(f"The memory is full. {advise_less_memory(cfg)}.") from error

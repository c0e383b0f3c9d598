"""Trainer: everything that one run trains with, and what it does besides updates: evaluate, sample, save."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gptlite.compute.device import Compute
from gptlite.compute.distributed import Dist
from gptlite.config.sampling import SampleSection
from gptlite.config.schema import RunConfig
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.tokens import Tokens
from gptlite.formatting import Say
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.score import Score
from gptlite.loggers.log_files import LogEnd
from gptlite.model.gpt import GPT
from gptlite.model.sampled_softmax import VocabSampler
from gptlite.runs.checkpoint import prune, save_checkpoint, write_pointer
from gptlite.runs.run import Run
from gptlite.training.checkpointing import checkpoint_files, checkpoint_tensors, first_non_finite
from gptlite.training.optim.build import Optimizers
from gptlite.training.state import TrainState

SAMPLE_CHARACTERS = 60
SAMPLE_SEED = 0


@dataclass(frozen=True)
class Trainer:
    """The parts that `build` in training/setup.py makes from a resolved config and a prepared text."""

    cfg: RunConfig  # without `auto`
    model: GPT
    hidden: Callable[..., Tensor]  # the model's `hidden` in training: compiled where run.compile says so
    vocab_sampler: VocabSampler | None  # where train.vocab_sample asks for one
    optimizers: Optimizers
    batches: Batches
    compute: Compute
    dist: Dist
    validation: Tokens
    language_model: LanguageModel  # the same model with its tokenizer, as sampling and scoring use it
    deciding: Mapping[str, Any]  # the values that a checkpoint must share with the run that resumes from it

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

    def evaluate(self) -> Score:
        """Score the whole validation text; the processes share its batches."""
        part = self.language_model.score_tokens(
            self.validation, batch_size=self.cfg.eval.batch_size, first=self.dist.rank, every=self.dist.world_size
        )
        nats, *counts = self.dist.sum_numbers(dataclasses.astuple(part))
        return Score(nats, *map(int, counts))

    def sample(self) -> str:
        """Up to SAMPLE_CHARACTERS characters that continue `eval.prompt`, always with the same seed; of a model that
        cannot write, the reason."""
        if self.cfg.model.sees_ahead:
            return "(no sample: without a mask the model cannot write)"
        temperature = self.cfg.sample.temperature
        params = SampleSection(max_new_tokens=SAMPLE_CHARACTERS, temperature=temperature, seed=SAMPLE_SEED)
        sample = next(self.language_model.samples(self.cfg.eval.prompt, params))
        for _ in sample:
            if len(sample.text) >= SAMPLE_CHARACTERS:
                break
        return sample.text[:SAMPLE_CHARACTERS]

    def find_non_finite(self) -> str | None:
        """The name of a parameter or optimizer state that is not finite in the main process; None where all are."""
        name = first_non_finite(self.model, self.optimizers) if self.dist.is_main else None
        return self.dist.from_main(name or "") or None

    def save(self, run: Run, state: TrainState, logs: Mapping[str, LogEnd], warn: Say, *, replace: bool) -> None:
        """Write a checkpoint, point to it, and only then remove old ones: there is a valid one at every instant.

        logs: how far the metric log is. replace: the checkpoint of this step, which was made before its evaluation.
        """
        if self.dist.is_main:
            files = checkpoint_files(self.language_model, self.deciding, state, logs)
            tensors = checkpoint_tensors(self.model, self.optimizers)
            loss = state.best_loss if state.is_new_best else None
            save_checkpoint(run.checkpoints, state.step, files, tensors, score=loss, replace=replace)
            write_pointer(run.checkpoints, "latest", state.step)
            if state.is_new_best:
                write_pointer(run.checkpoints, "best", state.step, {"loss": state.best_loss})
            if not state.evaluation_due:  # this checkpoint will be replaced, and another one must exist meanwhile
                prune(run.checkpoints, self.cfg.save.keep, newest=state.step, say=warn)
        self.dist.barrier()

"""The contents of a training checkpoint: state, tensors and ends of the logs; and how a run is restored from one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gptlite.compute.distributed import whole
from gptlite.errors import Damaged, RunError
from gptlite.inference.language_model import LanguageModel
from gptlite.inference.score import Score
from gptlite.loggers.metrics import LogEnd
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, generation_config, hf_config, to_gpt2
from gptlite.runs.checkpoint import Checkpoint
from gptlite.storage.sealed import dump_json
from gptlite.training.optim.build import Optimizers, load_named_state, named_state

RECENT = 10  # updates that `update_seconds` is averaged over


@dataclass(frozen=True)
class TrainState:
    """The state that training resumes from. No random state is kept: batches and masks follow from seed and step."""

    step: int = 0  # updates done
    tokens: int = 0  # trained on so far, each epoch counted
    # Since the last log line, so that a run resumed between two lines writes the line of an uninterrupted one.
    loss_sum: float = 0.0
    loss_steps: int = 0
    fractions: tuple[float, ...] = ()  # of the time, at each of these updates; none where steps are counted
    best_step: int | None = None
    best_loss: float | None = None
    best_bits_per_byte: float | None = None
    best_blocks: tuple[tuple[float, int], ...] = ()  # the nats and bytes of parts of the validation text
    evaluations_since_best: int = 0
    evaluation_due: bool = False  # at this step: a signal came before it, and the resume makes it up
    elapsed: float = 0.0  # seconds of training, evaluations and checkpoints included, over all sessions
    # With these, a run that the clock ends leaves time for its last evaluation and checkpoint. An evaluation's time is
    # kept in updates, because a busy machine slows both down alike.
    update_seconds: float = 0.0  # mean of the recent updates
    evaluation_updates: float = 0.0  # estimated until there was an evaluation
    save_seconds: float = 0.0  # of the newest checkpoint

    def after_update(self, tokens: int, now: float, fraction: float | None = None) -> TrainState:
        """After an update that ended `now`, in seconds of training, and began at this fraction of them."""
        seconds = now - self.elapsed
        if self.step == 0:
            seconds = 0.0  # the first update waits for what is loaded or compiled then
        elif self.update_seconds:
            seconds = min(seconds, 2 * self.update_seconds)  # one slow update must not end the run early
        return replace(
            self,
            step=self.step + 1,
            tokens=self.tokens + tokens,
            fractions=self.fractions if fraction is None else (*self.fractions, fraction),
            elapsed=now,
            update_seconds=self.update_seconds + (seconds - self.update_seconds) / min(max(1, self.step), RECENT),
        )

    def with_loss(self, loss: float) -> TrainState:
        """With the training loss of one more update."""
        return replace(self, loss_sum=self.loss_sum + loss, loss_steps=self.loss_steps + 1)

    def after_log(self) -> TrainState:
        """After a log line: a new mean begins."""
        return replace(self, loss_sum=0.0, loss_steps=0, fractions=())

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
            best_blocks=score.blocks,
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


def checkpoint_files(
    model: LanguageModel,
    deciding: Mapping[str, Any],
    state: TrainState,
    logs: Mapping[str, LogEnd],
    scaler: torch.amp.GradScaler,
) -> dict[str, bytes]:
    """Return every file of a checkpoint but its tensors. Hugging Face opens the folder as it is if it holds a GPT-2.

    deciding: the values that must be the same in a run that resumes from it.
    """
    tokenizer, cfg = model.tokenizer, model.gpt.cfg
    config = hf_config(cfg, tokenizer.vocab_size, tokenizer.eot_id)
    generation = generation_config(cfg, tokenizer.eot_id, model.suppressed.nonzero()[0].tolist())
    record = {
        "train": asdict(state),
        "config": deciding,
        "logs": {name: asdict(end) for name, end in logs.items()},
        "scaler": scaler.state_dict(),
    }
    return {
        **tokenizer.files(),
        "config.json": dump_json({**config, "gptlite": model.to_json()}),
        "generation_config.json": dump_json(generation),
        "state.json": dump_json(record),
    }


def checkpoint_tensors(model: GPT, optimizers: Optimizers, *, keep: bool = True) -> dict[str, dict[str, Tensor]]:
    """Return the tensor files of a checkpoint: parameters in GPT-2's layout, optimizer state by our parameter names.

    Without `keep` they are empty: a process that does not write gives its parts of the tensors.
    """
    files = {"model.safetensors": to_gpt2(model), "optimizer.safetensors": named_state(model, optimizers)}
    return {file: whole_tensors(tensors, keep=keep) for file, tensors in files.items()}


def whole_tensors(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Return tensors of which each process may hold a part, which are gathered one by one and moved to the CPU."""
    found = {}
    for name, tensor in tensors.items():
        full = whole(tensor)
        if keep:
            found[name] = tensor if full is tensor else full.cpu()
    return found


def first_non_finite(model: GPT, optimizers: Optimizers) -> str | None:
    """Return the name of the first parameter or optimizer state with a value that is not finite; None where all are.

    A sum is quicker to take than a test of each value, and where it is finite, every value is.
    """
    named = {**dict(model.named_parameters()), **named_state(model, optimizers)}
    tensors = {name: tensor.detach() for name, tensor in named.items() if tensor.ndim}
    sums = torch.stack([whole(tensor.sum(dtype=torch.float32)) for tensor in tensors.values()])
    if sums.isfinite().all():
        return None
    return next((name for name, tensor in tensors.items() if not whole(tensor.isfinite().all())), None)


@dataclass(frozen=True)
class Restored:
    """The part of a checkpoint that says where training and its logs stood. logs: none where they were not sealed."""

    state: TrainState
    logs: Mapping[str, LogEnd]
    digest: str


def restore(
    checkpoint: Checkpoint,
    model: GPT,
    optimizers: Optimizers,
    scaler: torch.amp.GradScaler,
    deciding: Mapping[str, Any],
) -> Restored:
    """Load a checkpoint into `model`, `optimizers` and the `scaler` of the loss.

    RunError, naming both sides, where a value that decides the result is not that of the run. Damaged where a file
    changed or a number is not finite.
    """
    record = checkpoint.read_json("state.json")
    problems = [
        f"the checkpoint was trained with {key}={record['config'][key]}, and the run has {value}. Restore the old "
        "value, or start a new run."
        for key, value in deciding.items()
        if record["config"].get(key, value) != value
    ]
    if problems:
        raise RunError(problems, where=str(checkpoint.path))
    from_gpt2(checkpoint.read_tensors("model.safetensors"), model)
    load_named_state(model, optimizers, checkpoint.read_tensors("optimizer.safetensors"))
    scaler.load_state_dict(record.get("scaler", {}))
    if (name := first_non_finite(model, optimizers)) is not None:
        raise Damaged(f"{name} has values that are not finite.", str(checkpoint.path))
    logs = {name: LogEnd(**end) for name, end in record["logs"].items()}
    state: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in record["train"].items()
    }
    return Restored(TrainState(**state), logs, checkpoint.digest)

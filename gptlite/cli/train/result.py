"""The end of `gptlite train`: samples, scores beside compressors, what the curve says, and the next commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from gptlite.cli.terminal import NO_MASK, next_commands
from gptlite.cli.train.configs import CHOSEN_MINUTES, MINUTES, SPEED
from gptlite.config.schema import DataSection, RunConfig
from gptlite.formatting import counted
from gptlite.planning.choose_sizes import CHARACTERS_FROM, MIN_TEXT
from gptlite.planning.choose_training import count_epochs, say_epochs
from gptlite.planning.plan import MAX_EPOCHS
from gptlite.planning.verdict import compare, explain, judge
from gptlite.runs.find import source_name
from gptlite.runs.run import Run
from gptlite.runs.summary import Evaluation, Summary, read_curve, read_run, read_samples
from gptlite.training.reconcile import saved_config

if TYPE_CHECKING:
    from gptlite.data.dataset.prepared import Prepared
    from gptlite.training.session import Outcome

SAMPLED_TOKENS, SAMPLED_CHARACTERS = 200, 300  # at most
REPEATED = 0.5  # of a sample; from there on the model mostly repeats its text
LONGER = 3  # times as many minutes or updates as before
SEARCHED = 50_000_000  # bytes of training text that are searched for a sample in a second


def result_fields(outcome: Outcome) -> dict[str, Any]:
    """Return the result of a run for a program, with its baselines and, as `verdict`, the lines for people."""
    state = outcome.state
    return {
        "run": outcome.run.name,
        "path": str(outcome.path),
        **{name: getattr(state, name) for name in ("step", "tokens", "best_step", "best_loss", "best_bits_per_byte")},
        "seconds": state.elapsed,
        "baselines": asdict(outcome.prepared.manifest.baselines),
        "verdict": [line for line in summarize(outcome) if line],
    }


def summarize(outcome: Outcome) -> list[str]:
    """Return the result of a run, and the next commands."""
    run, cfg = outcome.run, saved_config(outcome.run)
    lines, better = describe_result(read_run(run)[0], outcome.prepared, outcome.state.elapsed)
    handle = shlex.quote(run.handle)
    sample = [] if cfg.model.sees_ahead else [f'sample {handle} --prompt "..."']
    return lines + next_commands([*command_for_better(better, run, cfg), *sample, f"eval {handle}"], run.path.parent)


def describe_result(summary: Summary, prepared: Prepared, seconds: float) -> tuple[list[str], str | None]:
    """Say where a run is saved, its best scores and what its curve says; also return what would make it better."""
    run, manifest, cfg = summary.run, prepared.manifest, saved_config(summary.run)
    tokens, best, curve = summary.tokens or 0, summary.best_bits_per_byte, read_curve(summary)
    sees_ahead = cfg.model.sees_ahead
    epochs = count_epochs(tokens, manifest.train.tokens, cfg.model.block_size)
    trained = f"{counted(summary.step, 'update')} in {seconds:.0f} s"
    text = f"{counted(tokens, 'token')}: {say_epochs(epochs)}"
    lines = ["", f"{run.name}: {trained}, trained on {text}; saved in {run.path}"]
    loss = next((each.loss for each in curve if each.step == summary.best_step), None)
    if loss is not None and best is not None:
        lines.append(
            f"best at step {summary.best_step}: {best:.3f} bits per byte of text kept aside (less is better), loss "
            f"{loss:.4f}"
        )
        if sees_ahead:
            lines.append(f"this model {NO_MASK}")
        elif manifest.compressors_meaningful:
            found = manifest.baselines
            compressors = {"PPMd": found.ppmd, "xz -9": found.xz, "gzip -9": found.gzip}
            lines.append(compare(best, compressors))
            lines.append(explain(best, found.unigram, manifest.train.bytes + manifest.val.bytes))
    asked, chosen = run.info.get(MINUTES), run.info.get(CHOSEN_MINUTES)
    ends_early = asked is not None and chosen is not None and chosen == cfg.train.max_minutes < asked
    if cfg.train.from_ is not None and curve:
        lines += compare_with_start(curve)
    chose_bpe = "tokenizer.kind" in run.info.get("chosen", ()) and cfg.tokenizer.kind == "bpe"
    verdict = judge(
        curve,
        val_tokens=manifest.val.tokens,
        epochs=epochs,
        ends_early=ends_early,
        characters_follow=chose_bpe and manifest.train.bytes < CHARACTERS_FROM[-1][0],
    )
    lines += verdict.lines
    has_chosen_sizes = SPEED in run.info or sees_ahead or manifest.train.bytes < MIN_TEXT
    reads_too_often = epochs > MAX_EPOCHS and not has_chosen_sizes
    if reads_too_often:
        lines.append(f"the text was read {epochs:,.0f} times. Sizes chosen for it do better: --data without --config")
    return lines, "sizes" if reads_too_often else verdict.better


def compare_with_start(curve: Sequence[Evaluation]) -> Iterator[str]:
    """Say what training brought to a model that began with the weights of another, and what it forgot."""
    first, best = curve[0], min(curve, key=lambda evaluation: evaluation.bits_per_byte)
    yield f"before training: {first.bits_per_byte:.3f} bits per byte of the same text"
    if first.old_score is not None and best.old_score is not None:
        scores = f"{first.old_score:.3f} bits per byte before, {best.old_score:.3f} after"
        yield f"what is forgotten: the beginning of the old validation text has {scores}"


def command_for_better(better: str | None, run: Run, cfg: RunConfig) -> list[str]:
    """Return the command that gives a better model of the text, if one is known."""
    asked, here = cfg.data, f"{os.getcwd()}{os.sep}"
    given = asked.source if isinstance(asked.source, list) else [asked.source]
    text = " ".join(f"--data {shlex.quote(spec.removeprefix(here))}" for spec in given)
    if cfg.train.from_ is not None:
        is_beside = Path(cfg.train.from_).parent.parent.parent == run.path.absolute().parent
        source = source_name(cfg.train.from_) if is_beside else cfg.train.from_.removeprefix(here)
        text += f" --init {shlex.quote(source)}"
        text += f" --set tokenizer.kind={cfg.tokenizer.kind}" if cfg.tokenizer.from_ is None else ""
    reads_plainly = asked == DataSection(source=asked.source, dir=asked.dir, val_max_bytes=asked.val_max_bytes)
    minutes = run.info.get(MINUTES)
    if better == "time" and minutes is None and cfg.train.max_steps is not None:
        return [f"train --resume {shlex.quote(run.handle)} --set train.max_steps={LONGER * cfg.train.max_steps}"]
    if not reads_plainly:  # the command would have to repeat how
        return []
    if better == "text":
        return [f"train {text} --data MORE_TEXT --minutes {minutes:g}"]
    if better == "time" and minutes is not None:
        return [f"train {text} --minutes {LONGER * minutes:g}"]
    return [f"train {text}"] if better == "sizes" and SPEED not in run.info else []


def show_samples(outcome: Outcome) -> list[str]:
    """Return what the model wrote before training, and a longer sample of what the best checkpoint writes."""
    from gptlite.inference.load import load  # imports torch, as training has done
    from gptlite.inference.memorization import find_copied

    samples = read_samples(outcome.run)
    summary = read_run(outcome.run)[0]
    if not samples or summary.sees_ahead:
        return []
    prompt = str(summary.config["eval.prompt"])
    text = load(outcome.run.path).generate(prompt, max_new_tokens=SAMPLED_TOKENS)[:SAMPLED_CHARACTERS]
    lines = ["", "before training:", indent(samples[0][1], "  "), "now, at its best step:", indent(text, "  ")]
    if outcome.prepared.manifest.train.bytes <= SEARCHED:
        share = find_copied(outcome.prepared, [text])[0].share
        repeats = ": the model mostly repeats it" if share >= REPEATED else ""
        lines.append(f"{share:.0%} of this sample is copied word for word from the training text{repeats}")
    return lines

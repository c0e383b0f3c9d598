"""`gptlite eval --by-position`: how the loss falls as the context grows, as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from gptlite.cli.eval.eval_texts import Text
from gptlite.cli.eval.evaluator import Evaluator
from gptlite.cli.files import write_output
from gptlite.errors import RunError


def draw_by_position(load_evaluators: Sequence[Evaluator], texts: Sequence[Text], path: Path) -> None:
    """Write the picture: a line for each run, over all texts together."""
    from gptlite.inference.score import ByPosition
    from gptlite.views.line_plot import Line, line_plot

    lines = []
    for judge in load_evaluators:
        run, tokenizer = judge.run, judge.model.tokenizer
        with judge.settings():
            parts = [judge.model.score_by_position(ids, batch_size=run.cfg.eval.batch_size) for ids in judge.ids]
        means = ByPosition.total(parts).means
        if not all(map(math.isfinite, means)):
            raise RunError(f"{run.checkpoint.path}: loss = not finite: the model is broken; choose another checkpoint")
        lines.append(Line(f"{run.label} ({tokenizer.kind} {tokenizer.vocab_size})", means))
    title = texts[0].name if len(texts) == 1 else f"{len(texts)} texts"
    picture = line_plot(
        lines,
        title=f"Loss by position in the context: {title}",
        x_label="position: tokens of context",
        y_label="loss: nats per token",
    )
    write_output(path, picture)

"""The files of `gptlite eval`: the plot of --by-position, the pages of --attention, --follow and --per-token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.eval.inputs import Evaluator, SelectedModel, Text, find_texts, load_evaluators
from gptlite.cli.terminal import output_path, write_output
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import DataError, located
from gptlite.formatting import counted
from gptlite.views.attention import attention_page
from gptlite.views.follow import follow_page
from gptlite.views.line_plot import Line, line_plot
from gptlite.views.per_token import per_token_page

if TYPE_CHECKING:
    from gptlite.inference.language_model import LanguageModel

WITHIN = 1.96  # standard errors: 95 % of a normal distribution
MOST_TOKENS = 4000  # on the page of --per-token, which then takes a third of a megabyte
MOST_ON_PAGE = 96  # of --attention and --follow: as many as fit on a screen, and in a page of a few megabytes


def write_page(
    mode: str, models: Sequence[SelectedModel], files: Sequence[str] | None, text: str | None, out: str | None
) -> Path:
    """Write the plot or page of a mode and return its path. text: the value of --attention or --follow."""
    kind = "svg" if mode == "--by-position" else "html"
    path = output_path([model.name for model in models], out, f"{mode.removeprefix('--')}.{kind}")
    texts = find_texts(files, models) if text is None else []
    evaluators = load_evaluators(models, texts)
    if mode == "--by-position":
        content = plot_by_position(evaluators, texts)
    else:
        (evaluator,) = evaluators
        title = f"{evaluator.run.name}, step {evaluator.run.checkpoint.step}"
        with evaluator.settings():
            if text is not None:
                content = page_of_text(mode, evaluator.model, text, title)
            else:
                content = per_token_page_of(evaluator, f"{title}: {texts[0].name}")
    write_output(path, content)
    return path


def plot_by_position(evaluators: Sequence[Evaluator], texts: Sequence[Text]) -> str:
    """Plot the loss over the position in the context, one line per run over all texts. Returns SVG."""
    from gptlite.data.dataset.batches import eval_batches
    from gptlite.inference.score import loss_by_position

    lines = []
    for evaluator in evaluators:
        run, model = evaluator.run, evaluator.model
        windows = map(model.windows, evaluator.ids)
        batches = (batch for each in windows for _, batch in eval_batches(each, run.cfg.eval.batch_size))
        with evaluator.settings():
            bins = loss_by_position(model.gpt, batches, model.compute)
        means, places = [each.mean for each in bins], [math.sqrt(each.first * each.last) for each in bins]
        band = [(each.mean - WITHIN * each.error, each.mean + WITHIN * each.error) for each in bins]
        lines.append(Line(f"{run.label} ({model.tokenizer.kind} {model.tokenizer.vocab_size})", means, places, band))
    title = texts[0].name if len(texts) == 1 else f"{len(texts)} texts"
    return line_plot(
        lines,
        title=f"Loss by position in the context, with 95 % intervals: {title}",
        x_label="position: tokens of context",
        y_label="loss: nats per token",
    )


def page_of_text(mode: str, model: LanguageModel, text: str, title: str) -> str:
    """Return the page of --attention or --follow. DataError for a text that is empty, or too long."""
    from gptlite.course.follow import follow_last_token
    from gptlite.inference.inspect import attention_steps, position_table

    gpt, shape = model.gpt, model.gpt.cfg
    limit, why = min((shape.block_size, "the model's block_size"), (MOST_ON_PAGE, "as many as a page can show"))
    with located(mode):
        ids = model.encode(text)
        if not ids:
            raise DataError("the text is empty. Give one of at least 1 token.")
        if len(ids) > limit:
            raise DataError(f"the text has {counted(len(ids), 'token')}. At most {limit} are possible, {why}.")
    pieces, end = list(model.tokenizer.token_bytes()), model.tokenizer.eot_id
    if mode == "--follow":
        return follow_page(title, ids, pieces, end, follow_last_token(gpt, ids), shape)
    return attention_page(title, [pieces[i] for i in ids], attention_steps(gpt, ids), position_table(gpt), shape)


def per_token_page_of(evaluator: Evaluator, title: str) -> str:
    """Return the page of --per-token, with at most the first MOST_TOKENS tokens. DataError if nothing can be scored."""
    from gptlite.inference.inspect import score_each_token

    model, (tokens,) = evaluator.model, evaluator.ids
    n_scored = tokens.n_tokens - (not model.knows_end_of_text)  # without ends, the first is context only
    shown = TokenArray(tokens.read(0, min(tokens.n_tokens, 1 + MOST_TOKENS)), tokens.where)
    scores = score_each_token(model, shown, batch_size=evaluator.run.cfg.eval.batch_size, most=MOST_TOKENS)
    first, end = int(shown.ids[0]), model.tokenizer.eot_id
    return per_token_page(
        title,
        scores,
        list(model.tokenizer.token_bytes()),
        end,
        block_size=model.gpt.cfg.block_size,
        first_id=None if first == end else first,
        n_all=n_scored,
    )

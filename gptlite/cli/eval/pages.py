"""The files of `gptlite eval`: the plot of --by-position, the pages of --attention, --follow and --per-token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.eval.eval_texts import Text, find_texts
from gptlite.cli.eval.models import Evaluator, SelectedModel, load_evaluators
from gptlite.cli.files import output_path, write_output
from gptlite.errors import DataError, RunError, located
from gptlite.formatting import Say, counted

if TYPE_CHECKING:
    from gptlite.data.dataset.tokens import Tokens
    from gptlite.inference.language_model import LanguageModel

MOST_TOKENS = 4000  # on the page of --per-token, which then takes a third of a megabyte
SUFFIXES = {
    "--by-position": "by-position.svg",
    "--per-token": "per-token.html",
    "--attention": "attention.html",
    "--follow": "follow.html",
}


def write_page(
    mode: str,
    models: Sequence[SelectedModel],
    files: Sequence[str] | None,
    text: str | None,
    out: str | None,
    say: Say,
) -> Path:
    """Write the plot or page of a mode and return its path. text: the value of --attention or --follow."""
    path = output_path([model.name for model in models], out, SUFFIXES[mode])
    texts = find_texts(files, models) if text is None else []
    evaluators = load_evaluators(models, texts)
    for each in evaluators:
        with located(each.run.label):
            each.model.require_mask()
    if mode == "--by-position":
        write_output(path, plot_by_position(evaluators, texts))
        return path
    (evaluator,) = evaluators
    run, model = evaluator.run, evaluator.model
    title = f"{run.name}, step {run.checkpoint.step}"
    with evaluator.settings():
        if text is None:
            ((scored,), (ids,)) = texts, evaluator.ids
            content = per_token_page_of(model, ids, run.cfg.eval.batch_size, f"{title}: {scored.name}", say)
        elif mode == "--follow":
            content = follow_page_of(model, text, title)
        else:
            content = attention_page_of(model, text, title)
    write_output(path, content)
    return path


def plot_by_position(evaluators: Sequence[Evaluator], texts: Sequence[Text]) -> str:
    """Plot the loss over the position in the context, one line per run over all texts. Returns SVG."""
    from gptlite.inference.score import ByPosition
    from gptlite.views.line_plot import Line, line_plot

    lines = []
    for evaluator in evaluators:
        run, tokenizer = evaluator.run, evaluator.model.tokenizer
        with evaluator.settings():
            size = run.cfg.eval.batch_size
            parts = [evaluator.model.score_by_position(ids, batch_size=size) for ids in evaluator.ids]
        means = ByPosition.total(parts).means
        if not all(map(math.isfinite, means)):
            sentence = "the loss is not finite, so the model is broken. Choose another checkpoint."
            raise RunError(sentence, where=str(run.checkpoint.path))
        lines.append(Line(f"{run.label} ({tokenizer.kind} {tokenizer.vocab_size})", means))
    title = texts[0].name if len(texts) == 1 else f"{len(texts)} texts"
    return line_plot(
        lines,
        title=f"Loss by position in the context: {title}",
        x_label="position: tokens of context",
        y_label="loss: nats per token",
    )


def attention_page_of(model: LanguageModel, text: str, title: str) -> str:
    """Return the page of --attention. DataError for a text that is empty, or too long for the model or for a page."""
    from gptlite.inference.inspect import attention_steps, position_table
    from gptlite.views.attention import MOST_TOKENS as MOST_ON_PAGE
    from gptlite.views.attention import attention_page

    ids = ids_of_page(model, text, "--attention", MOST_ON_PAGE)
    pieces = model.tokenizer.token_bytes()
    layers = attention_steps(model.gpt, ids)
    return attention_page(title, [pieces[i] for i in ids], layers, position_table(model.gpt), model.info.model)


def follow_page_of(model: LanguageModel, text: str, title: str) -> str:
    """Return the page of --follow. DataError for a text that is empty, or too long for the model or for a page."""
    from gptlite.course.follow import follow_last_token
    from gptlite.views.follow import MOST_TOKENS as MOST_ON_PAGE
    from gptlite.views.follow import follow_page

    ids = ids_of_page(model, text, "--follow", MOST_ON_PAGE)
    pieces, end = list(model.tokenizer.token_bytes()), model.tokenizer.eot_id
    return follow_page(title, ids, pieces, end, follow_last_token(model.gpt, ids), model.info.model)


def ids_of_page(model: LanguageModel, text: str, option: str, most_on_page: int) -> list[int]:
    """Return the ids of the text of an option. DataError if it is empty, or too long for the model or for a page."""
    block_size = model.info.model.block_size
    limit, why = min((block_size, "the model's block_size"), (most_on_page, "as many as a page can show"))
    with located(option):
        ids = model.encode(text)
        if not ids:
            raise DataError("the text is empty. Give one of at least 1 token.")
        if len(ids) > limit:
            raise DataError(f"the text has {counted(len(ids), 'token')}. At most {limit} are possible, {why}.")
    return ids


def per_token_page_of(model: LanguageModel, tokens: Tokens, batch_size: int, title: str, say: Say) -> str:
    """Return the page of --per-token, with at most the first MOST_TOKENS tokens. DataError if nothing can be scored."""
    from gptlite.data.dataset.tokens import TokenArray
    from gptlite.inference.inspect import score_each_token
    from gptlite.views.per_token import per_token_page

    n_scored = tokens.n_tokens - (not model.knows_end_of_text)  # without ends, the first is context only
    is_cut = n_scored > MOST_TOKENS
    if is_cut:
        say(f"the page shows the first {MOST_TOKENS:,} of {counted(n_scored, 'token')}, to stay small")
    shown = TokenArray(tokens.read(0, min(tokens.n_tokens, 1 + MOST_TOKENS)), tokens.where)
    scores = score_each_token(model, shown, batch_size=batch_size)
    if is_cut and model.knows_end_of_text:
        scores = scores.first(MOST_TOKENS)  # the text continues, so its end is not scored
    first, end = int(shown.ids[0]), model.tokenizer.eot_id
    return per_token_page(
        title,
        scores,
        list(model.tokenizer.token_bytes()),
        end,
        block_size=model.info.model.block_size,
        first_id=None if first == end else first,
        n_all=n_scored if is_cut else None,
    )

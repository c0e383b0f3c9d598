"""The pages of `gptlite eval`: --attention and --per-token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.cli.eval.eval_texts import Text
from gptlite.cli.eval.evaluator import Evaluator
from gptlite.cli.files import write_output
from gptlite.errors import DataError, located
from gptlite.formatting import counted

if TYPE_CHECKING:
    from gptlite.data.tokens import Tokens
    from gptlite.inference.language_model import LanguageModel

MOST_TOKENS = 4000  # of a text on the page of --per-token, a third of a megabyte


def write_attention(judge: Evaluator, text: str, path: Path) -> None:
    """The page of --attention. DataError for a text that is empty, or too long for the model or for a page."""
    with judge.settings():
        page = attention_page_of(judge.model, text, about(judge))
    write_output(path, page)


def write_per_token(judge: Evaluator, text: Text, path: Path, say: Callable[[str], None]) -> None:
    """The page of --per-token, of at most the first MOST_TOKENS tokens."""
    with judge.settings():
        words = f"{about(judge)}: {text.name}"
        page = per_token_page_of(judge.model, judge.ids[0], judge.run.cfg.eval.batch_size, words, say)
    write_output(path, page)


def about(judge: Evaluator) -> str:
    """The model in a few words."""
    return f"{judge.run.name}, step {judge.run.checkpoint.step}"


def attention_page_of(model: LanguageModel, text: str, about: str) -> str:
    """The page of --attention. DataError for a text that is empty, or too long for the model or for a page."""
    from gptlite.inference.inspect import attention_steps, position_table
    from gptlite.views.attention import MOST_TOKENS as MOST_ON_PAGE
    from gptlite.views.attention import Conventions, attention_page

    with located("--attention"):
        ids = model.encode(text)
    shape = model.info.model
    limit, why = min((shape.block_size, "the model's block_size"), (MOST_ON_PAGE, "what a page has room for"))
    if not 1 <= len(ids) <= limit:
        advice = "shorten the text" if ids else "give a text"
        raise DataError(f"--attention = {counted(len(ids), 'token')}: at least 1 and at most {limit}, {why}; {advice}")
    pieces = model.tokenizer.token_bytes()
    conventions = Conventions(shape.scale_attention, shape.position)
    layers = attention_steps(model.gpt, ids)
    return attention_page(about, [pieces[i] for i in ids], layers, position_table(model.gpt), conventions)


def per_token_page_of(
    model: LanguageModel, tokens: Tokens, batch_size: int, about: str, say: Callable[[str], None]
) -> str:
    """The page of --per-token, of at most the first MOST_TOKENS tokens. DataError if there is nothing to score."""
    from gptlite.data.tokens import TokenArray
    from gptlite.inference.inspect import score_each_token
    from gptlite.views.per_token import ScoredText, per_token_page

    n_scored = tokens.n_tokens if model.ends else tokens.n_tokens - 1  # the first is context only; its end is scored
    cut = n_scored > MOST_TOKENS
    if cut:
        say(f"text = {counted(n_scored, 'token')}: the page shows the first {MOST_TOKENS:,}, so that it stays small")
    shown = TokenArray(tokens.read(0, min(tokens.n_tokens, 1 + MOST_TOKENS)), tokens.where)
    seen = score_each_token(model, shown, batch_size=batch_size)
    if cut and model.ends:
        seen = seen.first(MOST_TOKENS)  # without the end, where the text does not end
    first, end = int(shown.ids[0]), model.tokenizer.eot_id
    reading = ScoredText(about, model.info.model.block_size, None if first == end else first, n_scored if cut else None)
    return per_token_page(reading, seen, list(model.tokenizer.token_bytes()), end)

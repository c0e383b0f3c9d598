"""The pages of `gptlite eval`: --attention and --per-token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptlite import durable
from gptlite.errors import ConfigError, DataError, counted, naming

if TYPE_CHECKING:
    from gptlite.data.tokens import Tokens
    from gptlite.inference.load import Model
    from gptlite.runs.checkpoint import Checkpoint

MOST_TOKENS = 4000  # of a text on the page of --per-token, a third of a megabyte

AttentionOption = Annotated[
    str | None,
    typer.Option(
        "--attention", metavar="TEXT", help="Write a page that works out the attention of every head for this text."
    ),
]
PerTokenOption = Annotated[
    bool, typer.Option("--per-token", help="Write a page that colours the text by how surprising each token was.")
]
OutOption = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="Where the page goes. Default: RUN-attention.html or RUN-per-token.html."
    ),
]


@dataclass(frozen=True)
class Wanted:
    """Which page a command line asks for, if any."""

    attention: str | None
    per_token: bool
    out: str | None
    file: str | None  # whose text --per-token shows; None: the run's validation text

    def __bool__(self) -> bool:
        return self.attention is not None or self.per_token

    def check(self, *, as_json: bool) -> None:
        """ConfigError for options that do not go together."""
        problems = []
        if self.attention is not None and self.per_token:
            problems.append("--per-token = given: not with --attention, which is another page; ask for one at a time")
        if self.attention is not None and self.file is not None:
            problems.append(f"--file = {self.file}: not with --attention, which names its own text; leave it out")
        if self and as_json:
            problems.append("--json = given: not with a page; leave it out")
        if not self and self.out is not None:
            problems.append(f"--out = {self.out}: only with --attention or --per-token; name one of them")
        if problems:
            raise ConfigError(problems)

    def write(
        self, found: Checkpoint, model: Model, tokens: Tokens, batch_size: int, say: Callable[[str], None]
    ) -> Path:
        """Write the page; where it is. tokens: those that --per-token scores, batch_size windows at a time."""
        about = f"{_name_of(found)}, step {found.step}"
        if self.attention is not None:
            kind, content = "attention", attention_page_of(model, self.attention, about)
        else:
            kind, about = "per-token", f"{about}: {self.file or 'validation text'}"
            content = per_token_page_of(model, tokens, batch_size, about, say)
        path = Path(self.out or f"{_name_of(found)}-{kind}.html")
        durable.replace(path, content.encode())
        return path


def _name_of(found: Checkpoint) -> str:
    """The run that a checkpoint lies in; the checkpoint's own folder, where it was copied away from it."""
    from gptlite.runs.choosing import run_of

    run = run_of(found)
    return found.path.resolve().name if run is None else run.name


def attention_page_of(model: Model, text: str, about: str) -> str:
    """The page of --attention. DataError for a text that is empty, or too long for the model or for a page."""
    from gptlite.inference.looking import attention_of, position_table
    from gptlite.views.attention import MOST_TOKENS as MOST_ON_PAGE
    from gptlite.views.attention import Conventions, attention_page

    with naming("text", "--attention"):
        ids = model.encode(text)
    shape = model.facts.model
    limit, why = min((shape.block_size, "the model's block_size"), (MOST_ON_PAGE, "what a page has room for"))
    if not 1 <= len(ids) <= limit:
        advice = "shorten the text" if ids else "give a text"
        raise DataError(f"--attention = {counted(len(ids), 'token')}: at least 1 and at most {limit}, {why}; {advice}")
    pieces = model.tokenizer.token_bytes()
    conventions = Conventions(shape.scale_attention, shape.position)
    layers = attention_of(model.gpt, ids)
    return attention_page(about, [pieces[i] for i in ids], layers, position_table(model.gpt), conventions)


def per_token_page_of(model: Model, tokens: Tokens, batch_size: int, about: str, say: Callable[[str], None]) -> str:
    """The page of --per-token, of at most the first MOST_TOKENS tokens. DataError if there is nothing to score."""
    from gptlite.data.tokens import TokenArray
    from gptlite.inference.looking import surprises
    from gptlite.views.per_token import Reading, per_token_page

    n_scored = tokens.n_tokens - 1  # the first is context only
    cut = n_scored > MOST_TOKENS
    if cut:
        say(f"text = {counted(n_scored, 'token')}: the page shows the first {MOST_TOKENS:,}, so that it stays small")
    shown = TokenArray(tokens.read(0, min(tokens.n_tokens, 1 + MOST_TOKENS)), tokens.name)
    seen = surprises(model, shown, batch_size=batch_size)
    first, end = int(shown.ids[0]), model.tokenizer.eot_id
    reading = Reading(about, model.facts.model.block_size, None if first == end else first, n_scored if cut else None)
    return per_token_page(reading, seen, list(model.tokenizer.token_bytes()), end)

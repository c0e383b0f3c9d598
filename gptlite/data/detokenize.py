"""From ids back to the text that they stand for, piece by piece: memory does not grow with the text."""

from __future__ import annotations

from collections.abc import Iterator

from gptlite.data.tokens import Tokens
from gptlite.tokenizers.base import Tokenizer

_PIECE = 1 << 20  # ids


def text_of(tokens: Tokens, tokenizer: Tokenizer, *, between: bytes = b"") -> Iterator[bytes]:
    """The UTF-8 bytes of ids in pieces, which may end inside a character. between: what end-of-text becomes."""
    pieces = list(tokenizer.token_bytes())
    pieces[tokenizer.eot_id] = between
    for at in range(0, tokens.n_tokens, _PIECE):
        ids = tokens.read(at, min(_PIECE, tokens.n_tokens - at))
        yield b"".join(map(pieces.__getitem__, ids.tolist()))

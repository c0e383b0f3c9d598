from __future__ import annotations

import numpy as np

from gptlite.data import detokenize as text_module
from gptlite.data.detokenize import text_of
from gptlite.data.tokens import TokenArray
from gptlite.tokenizers.bpe import train_bpe

TOKENIZER = train_bpe(["é日本語 日本"] * 3, 262)  # a few merges, one of them of half a character


def test_the_pieces_of_a_text_are_the_text_and_its_ends_what_is_asked_for(monkeypatch) -> None:
    documents = ["日本語 é", "", "x日"]
    ids = [i for document in documents for i in (TOKENIZER.eot_id, *TOKENIZER.encode(document))]
    tokens = TokenArray(np.array(ids, np.uint32), "text")
    for piece in (1, 3, 100):
        monkeypatch.setattr(text_module, "_PIECE", piece)
        pieces = list(text_of(tokens, TOKENIZER, between=b"\xff"))
        assert len(pieces) == -(-len(ids) // piece)
        assert b"".join(pieces) == b"".join(b"\xff" + document.encode() for document in documents)
        assert b"".join(text_of(tokens, TOKENIZER)) == "".join(documents).encode()

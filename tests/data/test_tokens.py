from __future__ import annotations

import numpy as np

from gptlite.data import tokens as module
from gptlite.data.tokens import TokenArray, detokenize
from gptlite.tokenizers.bpe import train_bpe

TOKENIZER = train_bpe(["é日本語 日本"] * 3, 262)  # a few merges, one of them of half a character


def test_detokenized_pieces_join_to_the_text_with_the_separator_for_end_of_text(monkeypatch) -> None:
    documents = ["日本語 é", "", "x日"]
    ids = [i for document in documents for i in (TOKENIZER.eot_id, *TOKENIZER.encode(document))]
    tokens = TokenArray(np.array(ids, np.uint32))
    for piece in (1, 3, 100):
        monkeypatch.setattr(module, "_PIECE", piece)
        pieces = list(detokenize(tokens, TOKENIZER, separator=b"\xff"))
        assert len(pieces) == -(-len(ids) // piece)
        assert b"".join(pieces) == b"".join(b"\xff" + document.encode() for document in documents)
        assert b"".join(detokenize(tokens, TOKENIZER)) == "".join(documents).encode()

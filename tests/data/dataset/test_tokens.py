from __future__ import annotations

import numpy as np

from gptlite.data.dataset import tokens as module
from gptlite.data.dataset.tokens import TokenArray, count_ids, detokenize
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


def test_ids_of_a_short_text_are_all_counted_and_of_a_long_one_blocks_at_equal_distances(monkeypatch) -> None:
    ids = np.arange(1000, dtype=np.uint16) % 7
    assert count_ids(TokenArray(ids), 9).tolist() == [*np.bincount(ids), 0, 0]
    monkeypatch.setattr(module, "COUNTED_BLOCK", 2)
    ids = np.arange(6400, dtype=np.uint16) // 100  # 64 blocks of 100, of which the first two ids count
    assert count_ids(TokenArray(ids), 64).tolist() == [2] * 64
    assert count_ids(TokenArray(ids), 64, exact=True).tolist() == [100] * 64
    assert count_ids(TokenArray(ids[:1]), 64).sum() == 1

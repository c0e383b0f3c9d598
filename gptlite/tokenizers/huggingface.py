"""tokenizer.json and tokenizer_config.json, which give the same ids in Hugging Face's libraries.

Both are plain JSON, and are written without those libraries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from gptlite.errors import DataError
from gptlite.tokenizers.folder import END_OF_TEXT

# Byte-level vocabularies spell each byte as a printable character: itself if it is one, else one from U+0100 on.
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in _PRINTABLE)
_CHARACTER = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(256 + n) for n, byte in enumerate(_OTHERS)}
BYTE_OF = {character: byte for byte, character in _CHARACTER.items()}


def to_characters(token: bytes) -> str:
    """Spell a token as a byte-level vocabulary does.

    >>> to_characters(b" the")
    'Ġthe'
    """
    return "".join(map(_CHARACTER.__getitem__, token))


def to_bytes(spelling: str) -> bytes:
    """Undo `to_characters`."""
    return bytes(map(BYTE_OF.__getitem__, spelling))


def find_merges(ranks: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pair that each token of more than one byte was merged from, in the order of `ranks`.

    tiktoken merges any neighbours that make up a known token, the lowest rank first. Before the last merge of a token,
    its bytes have gone through all merges of lower rank, wherever it occurs, so its pair is always the same. Raise
    DataError for a token that no merge makes.
    """
    rank_of = {token: rank for rank, token in enumerate(ranks)}
    for rank, token in enumerate(ranks):
        if len(token) > 1:
            parts = _merged_below(token, rank, rank_of)
            if len(parts) != 2:
                raise DataError(f"token {rank} of the tokenizer has no merge that makes it. Prepare the text again.")
            yield parts[0], parts[1]


def _merged_below(token: bytes, limit: int, rank_of: dict[bytes, int]) -> list[bytes]:
    """Return the parts of `token` after all merges of a rank below `limit`."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while True:
        ranks = [rank_of.get(left + right, limit) for left, right in pairwise(parts)]  # of each with the next
        if (rank := min(ranks, default=limit)) >= limit:
            return parts
        at = ranks.index(rank)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def bpe_files(ranks: Sequence[bytes], pattern: str, eot_id: int) -> dict[str, bytes]:
    """Return the files of a byte-level BPE."""
    spelled = {token: to_characters(token) for token in ranks}
    split = {"type": "Split", "pattern": {"Regex": for_oniguruma(pattern)}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return _files(
        eot_id,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level]},
        decoder=byte_level,
        vocab={spelled[token]: rank for rank, token in enumerate(ranks)},
        # "left right", which releases before 0.20 read too; no spelling contains a blank
        merges=[f"{spelled[left]} {spelled[right]}" for left, right in find_merges(ranks)],
    )


def char_files(characters: str) -> dict[str, bytes]:
    """Return the files of a character tokenizer: a BPE without merges."""
    vocab = {character: place for place, character in enumerate(characters)}
    return _files(len(characters), pre_tokenizer=None, decoder={"type": "Fuse"}, vocab=vocab, merges=[])


def for_oniguruma(pattern: str) -> str:
    """Rewrite a pattern for the engine of Hugging Face's library, which reads x{1,3}+ as a repeated group.

    At the end of an alternative, where cl100k_base has it, x{1,3} matches the same.
    """
    return re.sub(r"(\{\d+,\d+\})\+(?=\||$)", r"\1", pattern)


def _files(
    eot_id: int, *, pre_tokenizer: object, decoder: object, vocab: dict[str, int], merges: list[str]
) -> dict[str, bytes]:
    model = {
        "type": "BPE",
        "dropout": None,
        # A name that no vocabulary has makes a character without an id an error. Without it, the character is dropped.
        "unk_token": "<|unknown|>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab | {END_OF_TEXT: eot_id},
        "merges": merges,
    }
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        # End-of-text is a word that no merges make: the library `tokenizers` would find an added token in any text.
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,  # True would remove the blank in " ,"
        "split_special_tokens": True,  # "<|endoftext|>" in a text is plain characters, as in gptlite
    }
    content = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    settings = json.dumps(config, indent=1) + "\n"
    return {"tokenizer.json": content.encode(), "tokenizer_config.json": settings.encode()}

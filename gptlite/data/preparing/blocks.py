"""Blocks of text that are encoded one by one, in any order, and give the ids that the whole documents would give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptlite.data.dataset.shards import dtype_for
from gptlite.data.preparing.corpus import Corpus, Part
from gptlite.data.preparing.split import SPLITS, SplitName
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.cuts import REACH, last_cut
from gptlite.tokenizers.folder import Ids

BLOCK_CHARACTERS = 1 << 17  # larger ones leave the caches of a core, and take three times as long
LONGEST = 1 << 20  # characters without a place for a cut


@dataclass(frozen=True)
class Block:
    """Some text of one split: short documents together, or a piece of a long one.

    number: among the blocks of the split. texts: each a document's, or a piece of it, in UTF-8. begins: for each,
    whether its document begins with it. forced: whether the last text was cut where that may change ids, for want of
    another place.
    """

    split: SplitName
    number: int
    texts: tuple[bytes, ...]
    begins: tuple[bool, ...]
    forced: bool = False


class _Pending:
    """The text of a split that is not in a block yet."""

    def __init__(self, split: SplitName) -> None:
        self._split, self._number = split, 0
        self._texts: list[list[bytes]] = []  # each in the pieces that came; only the last one may continue
        self._begins: list[bool] = []
        self._size = 0  # characters
        self._searched = 0  # bytes of the last text, which were found to have no place for a cut

    def add(self, part: Part) -> bool:
        """Add a piece of text. Returns whether there is enough for a block."""
        if part.begins or not self._texts:
            self._texts.append([])
            self._begins.append(part.begins)
            self._searched = 0
        self._texts[-1].append(part.text)
        self._size += _count_characters(part.text)
        return self._size >= BLOCK_CHARACTERS

    def take(self, cut: Callable[[bytes], int]) -> Block | None:
        """All but the end of the last text, which may continue. None if that is all there is and it cannot be cut."""
        last = b"".join(self._texts.pop())
        begins = self._begins.pop()
        searched = max(self._searched - 2 * REACH, 0)  # whether there is a cut near their end depends on what follows
        at = cut(last[searched:])
        at = searched + at if at else 0
        forced = at == 0 and _count_characters(last) >= LONGEST
        at = len(last) if forced else at
        block = None
        if at:
            self._texts.append([last[:at]])
            self._begins.append(begins)
        if self._texts:
            block = self.rest(forced=forced)
        left = last[at:]
        self._texts, self._begins = [[left]], [begins and at == 0]
        self._size, self._searched = _count_characters(left), len(left)
        return block

    def rest(self, *, forced: bool = False) -> Block:
        """All of it."""
        block = Block(self._split, self._number, tuple(map(b"".join, self._texts)), tuple(self._begins), forced)
        self._number += 1
        return block


def _count_characters(text: bytes) -> int:
    return len(text) if text.isascii() else len(text.decode())


def blocks(parts: Iterable[Part], cut: Callable[[bytes], int]) -> Iterator[Block]:
    """The text of both splits in blocks of about BLOCK_CHARACTERS, those of each split in order.

    cut: Tokenizer.last_cut. Where the text has no such place in LONGEST characters, it is cut anyway.
    """
    pending = {split: _Pending(split) for split in SPLITS}
    for part in parts:
        enough = pending[part.split].add(part)
        if enough and (block := pending[part.split].take(cut)) is not None:
            yield block
    for rest in pending.values():
        yield rest.rest()


def training_texts(corpus: Corpus) -> Iterator[str]:
    """The training text for a BPE to learn from: cut only where that changes nothing for it."""
    parts = (part for part in corpus.parts(having="train") if part.split == "train")
    return (text.decode() for block in blocks(parts, last_cut) for text in block.texts)


@dataclass(frozen=True, eq=False)
class EncodedBlock:
    """The ids of a block, (n,), and the positions where documents begin among them, (documents,)."""

    ids: Ids
    starts: npt.NDArray[np.int64]


def encode_block(block: Block, tokenizer: Tokenizer, *, mark_documents: bool) -> EncodedBlock:
    """Encode a block. mark_documents: write end-of-text before each document.

    DataError where the tokenizer cannot encode the text.
    """
    dtype = dtype_for(tokenizer.vocab_size)
    end_of_text = np.array([tokenizer.eot_id], dtype)
    ids: list[Ids] = []
    starts, size = [], 0
    for text, begins in zip(block.texts, block.begins, strict=True):
        if begins:
            starts.append(size)
        encoded = [end_of_text] * (begins and mark_documents) + [tokenizer.encode_utf8(text).astype(dtype, copy=False)]
        ids += encoded
        size += sum(map(len, encoded))
    if not ids:
        ids = [np.zeros(0, dtype)]
    return EncodedBlock(ids[0] if len(ids) == 1 else np.concatenate(ids), np.array(starts, np.int64))

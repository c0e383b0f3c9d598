"""Blocks of text that are encoded one by one, in any order, and give the ids that the whole documents would give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gptlite.data.corpus import Corpus, Part
from gptlite.data.shards import dtype_for
from gptlite.data.split import SPLITS, SplitName
from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.cuts import REACH, last_cut
from gptlite.tokenizers.folder import Ids

BLOCK_CHARACTERS = 1 << 17  # larger ones leave the caches of a core, and take three times as long
LONGEST = 1 << 20  # characters without a place for a cut


@dataclass(frozen=True)
class Block:
    """Some text of one split: short documents together, or a piece of a long one.

    number: among the blocks of the split. texts: each a document's, or a piece of it. utf8: the same as bytes. begins:
    for each, whether its document begins with it. forced: whether the last text was cut where that may change ids, for
    want of another place.
    """

    split: SplitName
    number: int
    texts: tuple[str, ...]
    utf8: tuple[bytes, ...]
    begins: tuple[bool, ...]
    forced: bool = False


class _Pending:
    """The text of a split that is not in a block yet."""

    def __init__(self, split: SplitName) -> None:
        self._split, self._number = split, 0
        self._texts: list[list[str]] = []  # each in the pieces that came; only the last one may continue
        self._utf8: list[list[bytes]] = []  # the same
        self._begins: list[bool] = []
        self._size = 0  # characters
        self._searched = 0  # characters of the last text, which were found to have no place for a cut

    def add(self, part: Part) -> bool:
        """Add a piece of text. Returns whether there is enough for a block."""
        if part.begins or not self._texts:
            self._append([], [], begins=part.begins)
            self._searched = 0
        text = part.text.decode()
        self._texts[-1].append(text)
        self._utf8[-1].append(part.text)
        self._size += len(text)
        return self._size >= BLOCK_CHARACTERS

    def take(self, cut: Callable[[str], int]) -> Block | None:
        """All but the end of the last text, which may continue. None if that is all there is and it cannot be cut."""
        text, utf8, begins = "".join(self._texts.pop()), b"".join(self._utf8.pop()), self._begins.pop()
        searched = max(self._searched - 2 * REACH, 0)  # of the last of them, too little was known
        at = cut(text[searched:])
        at = searched + at if at else 0
        forced = at == 0 and len(text) >= LONGEST
        at = len(text) if forced else at
        at_byte = len(utf8) if at == len(text) else len(text[:at].encode())
        if at:
            self._append([text[:at]], [utf8[:at_byte]], begins=begins)
        block = self.rest(forced=forced) if self._texts else None
        self._texts, self._utf8, self._begins = [], [], []
        self._size = self._searched = len(text) - at
        self._append([text[at:]], [utf8[at_byte:]], begins=begins and at == 0)
        return block

    def _append(self, text: list[str], utf8: list[bytes], *, begins: bool) -> None:
        self._texts.append(text)
        self._utf8.append(utf8)
        self._begins.append(begins)

    def rest(self, *, forced: bool = False) -> Block:
        """All of it."""
        texts, utf8 = tuple(map("".join, self._texts)), tuple(map(b"".join, self._utf8))
        block = Block(self._split, self._number, texts, utf8, tuple(self._begins), forced)
        self._number += 1
        return block


def blocks(parts: Iterable[Part], cut: Callable[[str], int]) -> Iterator[Block]:
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
    return (text for block in blocks(corpus.parts("train"), last_cut) for text in block.texts)


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
        encoded = [end_of_text] * (begins and mark_documents) + [tokenizer.encode(text).astype(dtype, copy=False)]
        ids += encoded
        size += sum(map(len, encoded))
    if not ids:
        ids = [np.zeros(0, dtype)]
    return EncodedBlock(ids[0] if len(ids) == 1 else np.concatenate(ids), np.array(starts, np.int64))

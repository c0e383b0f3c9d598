"""Every file of a prepared folder cut, removed, exchanged and flipped: it is refused, or what is read is the same."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import UserError

BPE = TokenizerSection(kind="bpe", vocab_size=260)
FILES = (
    "MANIFEST.json",
    "train-00000.bin",
    "val-00000.bin",
    "tokenizer/gptlite_tokenizer.json",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
)
N_FLIPS = 200


@dataclass(frozen=True)
class Folders:
    """A small prepared folder, that of another text, what the first one says, and the bytes of its files."""

    path: Path
    other: Path
    content: object
    before: dict[str, bytes]


def content_of(path: Path) -> object:
    """All that gptlite reads from a prepared folder, after its check."""
    prepared = Prepared(path)
    prepared.verify()
    splits = [prepared.split(name) for name in ("train", "val")]
    ids = [split.read(0, split.n_tokens).tolist() for split in splits]
    return prepared.manifest, ids, prepared.tokenizer().files()


def files_of(path: Path) -> dict[str, bytes]:
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    paths = []
    for name, word in (("a", "the cat sat "), ("b", "a dog ran on ")):
        folder = tmp_path_factory.mktemp(name)
        for part in range(3):
            (folder / f"{part}.txt").write_text(word * (20 + part))
        data = DataSection(source=str(folder), dir=str(tmp_path_factory.mktemp("prepared")))
        paths.append(prepare(data, BPE).path)
    return Folders(paths[0], paths[1], content_of(paths[0]), files_of(paths[0]))


def damages(name: str, good: bytes, other: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What can become of a file, with the words for it; None is its removal."""
    for part in range(20):
        yield f"cut at {part} of 20", good[: len(good) * part // 20]
    yield "removed", None
    yield "exchanged", other
    random_ = random.Random(name)
    for _ in range(N_FLIPS):
        bit = random_.randrange(8 * len(good))
        flipped = bytearray(good)
        flipped[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit} flipped", bytes(flipped)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_refused_or_what_is_read_is_the_same(folders: Folders, name: str) -> None:
    path, good = folders.path / name, folders.before[name]
    try:
        for words, damage in damages(name, good, (folders.other / name).read_bytes()):
            if damage is None:
                path.unlink()
            else:
                path.write_bytes(damage)
            with contextlib.suppress(UserError):
                assert content_of(folders.path) == folders.content, words
                assert name == "MANIFEST.json" or damage == good, words  # its seal is over values, not over white space
    finally:
        path.write_bytes(good)
    assert files_of(folders.path) == folders.before  # a check writes nothing
    assert sorted(folders.before) == sorted(FILES)

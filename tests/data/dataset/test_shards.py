from __future__ import annotations

import hashlib
import os
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptlite.data.dataset import shards as module
from gptlite.data.dataset.shards import MappedShard, Shard, ShardWriter, document_lengths, verified_index, verify_ids
from gptlite.errors import DataError


def write(folder: Path, documents: list[list[int]], vocab_size: int = 300, shard_tokens: int = 10) -> tuple[Shard, ...]:
    with ShardWriter(folder, "train", vocab_size, shard_tokens) as writer:
        for ids in documents:
            writer.add(ids)
        return writer.finish()


def test_the_bytes_on_disk_are_the_documented_format(tmp_path: Path) -> None:
    (shard,) = write(tmp_path, [[1, 258], [3]])
    ids = bytes([1, 0, 2, 1, 3, 0])
    header = struct.pack("<8sIIQQ", b"GPTLITE\0", 1, 1, 3, 2) + hashlib.sha256(ids).digest()
    assert (tmp_path / "train-00000.bin").read_bytes() == header + ids
    assert (tmp_path / "train-00000.idx").read_bytes() == struct.pack("<QQ", 0, 2)
    assert (shard.file, shard.tokens, shard.documents) == ("train-00000.bin", 3, 2)


@pytest.mark.parametrize(("vocab_size", "item_bytes"), [(65536, 2), (65537, 4)])
def test_two_bytes_are_used_where_every_id_fits(tmp_path: Path, vocab_size: int, item_bytes: int) -> None:
    (shard,) = write(tmp_path, [[vocab_size - 1]], vocab_size)
    assert (tmp_path / shard.file).stat().st_size == 64 + item_bytes
    assert MappedShard(tmp_path, shard, vocab_size).ids.tolist() == [vocab_size - 1]


@pytest.mark.parametrize("advised", [True, False])
def test_a_long_shard_does_not_fill_the_memory_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advised: bool
) -> None:
    released: list[int] = []
    monkeypatch.setattr(module, "_MAX_CACHED", 8)
    if advised:
        note_size = lambda fd, *_: released.append(os.fstat(fd).st_size)  # noqa: E731
        monkeypatch.setattr(os, "posix_fadvise", note_size, raising=False)
    else:  # as on macOS and Windows
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    (shard,) = write(tmp_path, [[1, 2, 3], [4, 5], [6, 7]])
    assert released == [64 + 10] * advised
    assert MappedShard(tmp_path, shard, 300).ids.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_an_id_outside_the_vocabulary_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        write(tmp_path, [[300]])


@settings(max_examples=25, deadline=None)  # each writes and syncs a file per shard
@given(st.lists(st.lists(st.integers(0, 299), min_size=1, max_size=25), min_size=1), st.integers(1, 12))
def test_documents_continue_in_the_next_shard(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[int]], shard_tokens: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    shards = write(folder, documents, shard_tokens=shard_tokens)
    parts = [MappedShard(folder, shard, 300).ids for shard in shards]
    assert np.concatenate(parts).tolist() == [i for ids in documents for i in ids]
    assert [len(part) for part in parts[:-1]] == [shard_tokens] * (len(parts) - 1)
    starts = [np.fromfile((folder / shard.file).with_suffix(".idx"), "<u8") for shard in shards]
    firsts = [int(part[at]) for part, begins in zip(parts, starts, strict=True) for at in begins]
    assert firsts == [ids[0] for ids in documents]
    assert document_lengths(folder, shards).tolist() == [len(ids) for ids in documents]
    for shard in shards:
        verify_ids(folder, shard, 300)


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    (shard,) = write(tmp_path, [[1, 2], [3]])
    for name, verify in (("train-00000.bin", partial(verify_ids, vocab_size=300)), ("train-00000.idx", verified_index)):
        good = (tmp_path / name).read_bytes()
        for at in range(len(good)):
            (tmp_path / name).write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
            with pytest.raises(DataError, match=f"{name}: .* damaged: (the header|its sha256 is [0-9a-f]{{12}}, in) "):
                verify(tmp_path, shard)
        (tmp_path / name).write_bytes(good)


@pytest.mark.parametrize("name", ["train-00000.bin", "train-00000.idx"])
def test_opening_notices_a_missing_or_shortened_file(tmp_path: Path, name: str) -> None:
    (shard,) = write(tmp_path, [[1, 2, 3]])
    size = (tmp_path / name).stat().st_size
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-1])
    with pytest.raises(
        DataError, match=f"{name}: .* damaged: the file has {size - 1} bytes instead of {size}. Remove its"
    ):
        MappedShard(tmp_path, shard, 300)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"{name}: the prepared data is damaged: the file is missing"):
        MappedShard(tmp_path, shard, 300)


def test_all_that_is_written_of_finished_shards_would_survive_a_power_cut(tmp_path: Path, unsynced: set[int]) -> None:
    assert len(write(tmp_path, [[1] * 15, [2]])) == 2
    assert unsynced == set()


def test_a_writer_that_is_stopped_leaves_no_valid_header(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "train", 300) as writer:
        writer.add([1, 2, 3])
    assert not any((tmp_path / "train-00000.bin").read_bytes()[:64])

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.batches import Batches
from gptlite.data.manifest import SplitRecord
from gptlite.data.prepare import prepare
from gptlite.data.prepared import Prepared, Split
from gptlite.data.shards import ShardWriter
from gptlite.errors import DataError


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    return prepare(DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path)), TokenizerSection(kind="char"))


def edit(prepared: Prepared, **changes: object) -> None:
    path = prepared.path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes))


def test_reading_crosses_the_joints_of_shards(tmp_path: Path) -> None:
    ids = np.arange(100, dtype=np.uint32)
    with ShardWriter(tmp_path, "train", 300, shard_tokens=7) as writer:
        for start in range(0, 100, 10):
            writer.add(ids[start : start + 10])
        shards = writer.finish()
    split = Split(tmp_path, "train", SplitRecord(100, 0, 10, shards), 300)
    for start in range(0, 101):
        for length in (0, 1, 6, 7, 8, 23, 100):
            if start + length <= 100:
                assert split.read(start, length).tolist() == list(range(start, start + length))
    with pytest.raises(IndexError):
        split.read(99, 2)


def test_what_is_read_is_a_copy(prepared: Prepared) -> None:
    split = prepared.split("train")
    split.read(0, 5)[:] = 9
    assert split.read(0, 5).tolist() == [0, 1, 2, 3, 4]


def test_a_folder_copied_elsewhere_works(prepared: Prepared, tmp_path: Path) -> None:
    copy = Prepared(Path(shutil.copytree(prepared.path, tmp_path / "elsewhere")))
    copy.verify()
    assert copy.manifest == prepared.manifest


def test_a_folder_of_a_version_that_counted_no_pairs_of_bytes_is_read(prepared: Prepared) -> None:
    lines = prepared.manifest.reference
    edit(prepared, reference={"unigram": lines.unigram, "gzip": lines.gzip, "xz": lines.xz})
    assert Prepared(prepared.path).manifest.reference == dataclasses.replace(lines, bigram=None)


def test_block_sizes_that_do_not_fit_name_the_largest_that_does(prepared: Prepared) -> None:
    prepared.check_block_size(179)
    with pytest.raises(
        DataError,
        match=r"train = 180 tokens: model.block_size = 180 needs 181; set model.block_size to at most 179, or",
    ):
        prepared.check_block_size(180)
    assert Batches(prepared.split("train"), 179, 2, seed=0).rows(0)[0].shape == (2, 179)


def test_a_validation_part_of_one_token_cannot_be_scored(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("0123456789")
    made = prepare(DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path)), TokenizerSection(kind="char"))
    with pytest.raises(DataError, match=r"val = 1 token: at least 2 are needed to score one; give more text$"):
        made.check_block_size(4)


def test_another_format_version_is_named(prepared: Prepared) -> None:
    edit(prepared, format_version=2)
    with pytest.raises(DataError, match=r"manifest\.json: format_version = 2: this gptlite reads 1; prepare again"):
        Prepared(prepared.path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_manifest_is_noticed(prepared: Prepared, content: str) -> None:
    (prepared.path / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: content = not a manifest: the prepared data is damaged"):
        Prepared(prepared.path)


def test_a_manifest_with_wrong_keys_names_them(prepared: Prepared) -> None:
    edit(prepared, start_id="x")
    with pytest.raises(DataError, match=r"content = start_id: .*valid integer"):
        Prepared(prepared.path)
    edit(prepared, start_id=1, more=2)
    with pytest.raises(DataError, match=r"content = more: "):
        Prepared(prepared.path)


def test_a_folder_that_is_no_prepared_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest\.json: reading = No such file or directory: a folder made by"):
        Prepared(tmp_path)


def test_verify_lists_every_damaged_file(prepared: Prepared) -> None:
    prepared.verify()
    for name in ("train-00000.bin", "val-00000.idx"):
        path = prepared.path / name
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    (prepared.path / "tokenizer" / "gptlite_tokenizer.json").write_text("{}")
    with pytest.raises(DataError) as caught:
        Prepared(prepared.path).verify()
    assert [Path(problem.partition(":")[0]).name for problem in caught.value.problems] == [
        "train-00000.bin",
        "val-00000.idx",
        "gptlite_tokenizer.json",
    ]


def test_another_tokenizer_in_the_folder_is_refused(prepared: Prepared) -> None:
    record = json.loads((prepared.path / "manifest.json").read_text("utf-8"))["tokenizer"]
    edit(prepared, tokenizer=record | {"fingerprint": "f" * 64})
    with pytest.raises(DataError, match=r"tokenizer: fingerprint = [0-9a-f]{12}: the ids were made with f{12};"):
        Prepared(prepared.path).tokenizer()

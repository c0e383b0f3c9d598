from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.batches import Batches
from gptlite.data.dataset.manifest import SplitRecord
from gptlite.data.dataset.prepared import Prepared, Split
from gptlite.data.dataset.shards import ShardWriter
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import DataError

CHAR = TokenizerSection(kind="char")


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    (tmp_path / "book.txt").write_text("0123456789" * 20)
    return prepare(DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path)), CHAR)


def edit(prepared: Prepared, **changes: object) -> None:
    """Change fields of a manifest and seal it again, as someone could who knows the format."""
    path = prepared.path / "manifest.json"
    fields = json.loads(path.read_text("utf-8")) | changes
    del fields["sha256"]
    sealed = (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode()
    path.write_text(json.dumps(fields | {"sha256": hashlib.sha256(sealed).hexdigest()}))


def test_reading_crosses_shards(tmp_path: Path) -> None:
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


def test_read_returns_a_copy(prepared: Prepared) -> None:
    split = prepared.split("train")
    split.read(0, 5)[:] = 9
    assert split.read(0, 5).tolist() == [0, 1, 2, 3, 4]


def test_a_folder_copied_elsewhere_works(prepared: Prepared, tmp_path: Path) -> None:
    copy = Prepared(Path(shutil.copytree(prepared.path, tmp_path / "elsewhere")))
    copy.verify()
    assert copy.manifest == prepared.manifest


def test_a_manifest_of_a_version_without_bigram_baseline_is_read(prepared: Prepared) -> None:
    baselines = prepared.manifest.baselines
    edit(prepared, baselines={"unigram": baselines.unigram, "gzip": baselines.gzip, "xz": baselines.xz})
    assert Prepared(prepared.path).manifest.baselines == dataclasses.replace(baselines, bigram=None)


def test_block_sizes_that_do_not_fit_name_the_largest_that_does(prepared: Prepared) -> None:
    prepared.check_block_size(179)
    with pytest.raises(
        DataError,
        match=r"\(train\): the text has 180 tokens, but model.block_size 180 needs .* 181. Use .*=179 or less, or",
    ):
        prepared.check_block_size(180)
    assert Batches(prepared.split("train"), 179, 2, seed=0).rows(0)[0].shape == (2, 179)


def test_a_validation_part_of_one_token_cannot_be_scored(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("0123456789")
    made = prepare(DataSection(source=str(tmp_path / "book.txt"), dir=str(tmp_path)), CHAR)
    with pytest.raises(
        DataError, match=r"\(val\): the text has 1 token, but scoring needs at least 2\. Give more text\.$"
    ):
        made.check_block_size(4)


def test_another_format_version_is_named(prepared: Prepared) -> None:
    edit(prepared, format_version=3)
    with pytest.raises(DataError, match=r"manifest\.json: .*format_version\b.* 3.* this gptlite reads 1 and 2"):
        Prepared(prepared.path)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_manifest_is_noticed(prepared: Prepared, content: str) -> None:
    (prepared.path / "manifest.json").write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json: "):
        Prepared(prepared.path)


def test_a_manifest_with_wrong_keys_names_them(prepared: Prepared) -> None:
    edit(prepared, start_id="x")
    with pytest.raises(DataError, match=r"the prepared data is damaged: start_id: .*valid integer"):
        Prepared(prepared.path)
    edit(prepared, start_id=1, more=2)
    with pytest.raises(DataError, match=r"the prepared data is damaged: more: "):
        Prepared(prepared.path)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"manifest\.json: "):
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
    assert [Path(problem.where or "").name for problem in caught.value.problems] == [
        "train-00000.bin",
        "val-00000.idx",
        "gptlite_tokenizer.json",
    ]


def test_another_tokenizer_in_the_folder_is_refused(prepared: Prepared) -> None:
    record = json.loads((prepared.path / "manifest.json").read_text("utf-8"))["tokenizer"]
    edit(prepared, tokenizer=record | {"fingerprint": "f" * 64})
    with pytest.raises(
        DataError, match=r"tokenizer: this is not the tokenizer of the ids: .* theirs with f{12} and 11\. "
    ):
        Prepared(prepared.path).tokenizer()

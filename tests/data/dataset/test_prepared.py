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

# Written for the text below by a version that called the baselines "reference".
OLD_MANIFEST = """{
"format_version": 1, "fingerprint": "d5190525e32ce340154aecd8b466e1167b048e37466a53dcbc2b116f4a18074f",
"sources": [{"name": "book.txt", "files": 1, "bytes": 200,
    "sha256": "295cbb667c2d2380418d4c7576c666c4f1690de2a2433f0e301bd5923377f8ed", "python": null}],
"encoding": "utf-8", "normalize": "none",
"tokenizer": {"kind": "char", "fingerprint": "13a71ba680e7845ee7d5b576ef92d23b762771885c513cdb774ac34f71d12cef",
    "vocab_size": 11, "requested_vocab_size": 11},
"start_id": 0,
"split_rule": {"rule": "tail_of_the_document", "threshold": 0.1, "val_fraction": 0.1, "val_max_bytes": 10000000},
"train": {"tokens": 180, "bytes": 180, "documents": 1, "shards": [{
    "file": "train-00000.bin", "tokens": 180, "documents": 1,
    "sha256": "49730166ea6f8d8956f96db8bf6ee509081423a5c8bf2a0ced9658d3a2576fe9",
    "index_sha256": "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc"}]},
"val": {"tokens": 20, "bytes": 20, "documents": 1, "shards": [{
    "file": "val-00000.bin", "tokens": 20, "documents": 1,
    "sha256": "f451eac0a122c27cabbcbc5970714a7d68c7044261461f7efcf32f2425125f55",
    "index_sha256": "af5570f5a1810b7af78caf4bc70a660f0df51e42baf91d4de5b2328de0e83dfc"}]},
"reference": {"unigram": 3.3219, "gzip": 12.8, "xz": 30.4, "bigram": 0.1661}
}"""
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


def test_a_folder_of_an_older_version_is_found_and_read(prepared: Prepared) -> None:
    (prepared.path / "manifest.json").write_text(OLD_MANIFEST)
    old = prepare(DataSection(source=str(prepared.path.parent / "book.txt"), dir=str(prepared.path.parent)), CHAR)
    old.verify()
    assert old.path == prepared.path
    assert old.manifest == dataclasses.replace(prepared.manifest, report=None)


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

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.prepared import Prepared
from gptlite.data.preparing import encode, fingerprint
from gptlite.data.preparing import prepare as module
from gptlite.data.preparing.baselines import ppmd
from gptlite.data.preparing.fingerprint import compute_fingerprint
from gptlite.data.preparing.prepare import prepare

Section = Callable[..., DataSection]
Tree = Callable[[Path], dict[str, str]]
CHAR = TokenizerSection(kind="char")
BPE = TokenizerSection(kind="bpe", vocab_size=270)
POEMS = {f"poem {i}.txt": f"Poem number {i}\r\nna\u00efve \u4e16\u754c {'la ' * (i % 7)}\n" for i in range(60)}


@pytest.fixture
def make(tmp_path: Path, section: Section) -> Callable[..., Prepared]:
    """Write files and prepare them: make({"a.txt": "text"}, val_fraction=0.2)."""

    def prepared(files: dict[str, str], tokenizer: TokenizerSection = CHAR, **keys: Any) -> Prepared:
        return prepare(section(tmp_path, files, **keys), tokenizer)

    return prepared


def documents(prepared: Prepared, name: Any) -> list[str]:
    """The texts of a split, cut at the starts of its documents."""
    split, tokenizer = prepared.split(name), prepared.tokenizer()
    ids = split.read(0, split.n_tokens)
    parts = np.split(ids, np.flatnonzero(ids == tokenizer.eot_id))
    if prepared.manifest.train.documents + prepared.manifest.val.documents > 2:
        assert parts.pop(0).size == 0
    assert len(parts) == getattr(prepared.manifest, name).documents
    return [tokenizer.decode(part.tolist()) for part in parts]


def sha256_of(prepared: Prepared, name: str) -> str:
    return hashlib.sha256((prepared.path / name).read_bytes()).hexdigest()


@pytest.mark.parametrize(("more", "half"), [(0, 500), (1, 10)])
def test_more_than_half_of_the_text_is_in_documents_up_to_the_recorded_length(
    make: Callable[..., Prepared], tmp_path: Path, more: int, half: int
) -> None:
    (tmp_path / "val.txt").write_text("y\n")
    lines = "x" * 499 + "\n" + "12345678\n" + "123456789\n" * (49 + more)
    made = make({"lines.txt": lines}, documents="lines", val_source=str(tmp_path / "val.txt"))
    assert made.manifest.train.half_length == half


def test_ppmd_has_read_the_last_of_the_training_text(make: Callable[..., Prepared], monkeypatch) -> None:
    monkeypatch.setattr(encode, "MAX_PPMD_BYTES", 5000)
    text = "".join(f"{i * i}, {i % 17}\n" for i in range(3000))
    cut = len(text) * 9 // 10
    found = make({"numbers.txt": text}).manifest.baselines.ppmd
    assert found == ppmd(text[cut - 5000 : cut].encode(), text[cut:].encode())


def test_one_document_is_split_at_nine_tenths_and_has_no_end_of_text(make: Callable[..., Prepared]) -> None:
    prepared = make({"book.txt": "0123456789" * 10})
    assert documents(prepared, "train") == ["0123456789" * 9]
    assert documents(prepared, "val") == ["0123456789"]
    manifest = prepared.manifest
    assert (manifest.train.tokens, manifest.train.bytes, manifest.val.tokens) == (90, 90, 10)
    assert manifest.split_rule.rule == "tail_of_the_document"
    assert manifest.baselines.unigram == pytest.approx(np.log2(10), abs=1e-4)
    assert prepared.path.name == f"book-{manifest.fingerprint[:12]}"


@pytest.mark.parametrize("tokenizer", [CHAR, BPE])
def test_every_document_comes_back_in_order_on_one_side(
    make: Callable[..., Prepared], tokenizer: TokenizerSection
) -> None:
    prepared = make(POEMS, tokenizer)
    train, val = documents(prepared, "train"), documents(prepared, "val")
    assert prepared.manifest.split_rule.rule == "document_hash"
    assert sorted(train + val) == sorted(POEMS.values())
    in_order = [POEMS[name] for name in sorted(POEMS)]
    for part in (train, val):
        assert part == [text for text in in_order if text in set(part)]
    below = [t for t in in_order if int(hashlib.sha256(t.encode()).hexdigest(), 16) / 2**256 < 0.1]
    assert val == below
    record = prepared.manifest
    assert record.val.bytes == sum(len(text.encode()) for text in val)
    assert (record.val.documents, record.train.documents) == (len(val), len(train))


def test_few_documents_each_give_a_tail_with_end_of_text_before_both_parts(make: Callable[..., Prepared]) -> None:
    prepared = make({"a.txt": "a" * 100, "b.txt": "\u00e9" * 25})  # 50 bytes: the tail of 5 starts inside a character
    assert documents(prepared, "train") == ["a" * 90, "\u00e9" * 23]
    assert documents(prepared, "val") == ["a" * 10, "\u00e9" * 2]
    assert prepared.manifest.split_rule.rule == "tail_of_each_document"


@pytest.mark.parametrize(
    ("files", "start"),
    [
        ({"a.txt": "abc\n" * 30, "b.txt": "abc\n" * 30}, "end of text"),
        ({"a.txt": "abbb\n" * 30}, "\n"),
        ({"a.txt": "abbb" * 30 + "\n"}, "b"),  # the newline is in the validation part only
        ({"a.txt": "abbb" * 30}, "b"),
    ],
)
def test_sampling_starts_from_end_of_text_or_newline_or_the_most_frequent_id(
    make: Callable[..., Prepared], files: dict[str, str], start: str
) -> None:
    prepared = make(files)
    tokenizer = prepared.tokenizer()
    id_ = prepared.manifest.start_id
    assert ("end of text" if id_ == tokenizer.eot_id else tokenizer.decode([id_])) == start


def test_a_second_prepare_builds_nothing_and_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: Section, tree: Tree
) -> None:
    monkeypatch.setattr(fingerprint, "_SETTLED_NS", -1)  # trust files that were written just now
    data = section(tmp_path, POEMS)
    first = prepare(data, CHAR)
    before = tree(tmp_path / "prepared")

    def refuse(*_: object) -> Any:
        raise AssertionError("work was done again")

    monkeypatch.setattr(module, "build", refuse)
    monkeypatch.setattr(module, "scan", refuse)
    monkeypatch.setattr(fingerprint, "_hash_file", refuse)
    assert prepare(data, CHAR).path == first.path
    assert tree(tmp_path / "prepared") == before


def test_the_fingerprint_is_known_before_prepare_and_nothing_is_written_for_it(
    tmp_path: Path, section: Section
) -> None:
    data = section(tmp_path, POEMS)
    known = compute_fingerprint(data, CHAR)
    assert not (tmp_path / "prepared").exists()
    assert prepare(data, CHAR).manifest.fingerprint == known


def test_a_folder_may_be_named_and_is_found_under_that_name(tmp_path: Path, section: Section) -> None:
    data = section(tmp_path, POEMS)
    named = prepare(data, CHAR, name="my poems")
    assert named.path.name == f"my-poems-{named.manifest.fingerprint[:12]}"
    assert prepare(data, CHAR).path == prepare(data, CHAR, name="other").path == named.path


def test_the_folder_does_not_depend_on_where_the_text_lies(tmp_path: Path, section: Section, tree: Tree) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    one, two = (prepare(section(tmp_path / name, POEMS), CHAR).path for name in "xy")
    assert one.name == two.name
    assert tree(one) == tree(two)
    assert not any(str(tmp_path).encode() in path.read_bytes() for path in one.rglob("*") if path.is_file())


def test_the_split_depends_on_the_text_not_on_its_encoding(make: Callable[..., Prepared], tmp_path: Path) -> None:
    texts = {f"{n}.txt": f"na\u00efve {n}\n" for n in range(60)}
    expected = documents(make(texts), "val")
    for name, text in texts.items():
        (tmp_path / "texts" / name).write_bytes(text.encode("cp1252"))
    found = documents(make({}, source=str(tmp_path / "texts"), encoding="cp1252"), "val")
    assert found == expected
    digests = (hashlib.sha256(text.encode()).digest() for text in texts.values())
    assert len(found) == sum(int.from_bytes(digest[:8], "big") < 2**64 // 10 for digest in digests)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"b.txt": "other\n" * 40}},
        {"encoding": "cp1252"},
        {"normalize": "nfc"},
        {"val_fraction": 0.2},
        {"val_max_bytes": 20},
        {"tokenizer": BPE},
        {"tokenizer": TokenizerSection(kind="bpe", vocab_size=271)},
    ],
)
def test_every_change_of_the_output_changes_the_name(tmp_path: Path, change: dict[str, Any], section: Section) -> None:
    files = {"a.txt": "some text\n" * 40, "b.txt": "text\n" * 40}
    before = prepare(section(tmp_path, files), CHAR).path.name
    files |= change.pop("files", {})
    tokenizer = change.pop("tokenizer", CHAR)
    after = prepare(section(tmp_path, files, **change), tokenizer).path.name
    assert before.rpartition("-")[0] == after.rpartition("-")[0] == "texts"
    assert before != after


def test_keys_that_do_not_change_the_output_do_not_change_the_name(tmp_path: Path, section: Section) -> None:
    made = prepare(section(tmp_path, POEMS), CHAR)
    for keys in ({"encoding": "UTF8"}, {"order": "random"}):
        assert prepare(section(tmp_path, POEMS, **keys), CHAR).path == made.path


@pytest.mark.parametrize(
    ("names", "stem"),
    [
        (["My book (2nd).txt"], "My-book-2nd"),
        (["..."], "data"),
        (["\u0432\u043e\u0439\u043d\u0430.txt"], "\u0432\u043e\u0439\u043d\u0430"),
        (["a.txt", "b.txt", "c.txt"], "a-and-2-more"),
    ],
)
def test_the_folder_is_named_after_the_text(tmp_path: Path, names: list[str], stem: str, section: Section) -> None:
    for name in names:
        section(tmp_path, {name: "some text " * 20})
    data = DataSection(source=[str(tmp_path / "texts" / name) for name in names], dir=str(tmp_path / "prepared"))
    prepared = prepare(data, CHAR)
    assert prepared.path.name.rpartition("-")[0] == stem
    assert [source.name for source in prepared.manifest.sources] == names


def test_the_manifest_says_where_the_text_came_from(make: Callable[..., Prepared]) -> None:
    book = "some text\n" * 30
    prepared = make({"a.txt": book})
    content = json.loads((prepared.path / "MANIFEST.json").read_text("utf-8"))
    sha256 = hashlib.sha256(book.encode()).hexdigest()
    assert content["sources"] == [{"name": "a.txt", "files": 1, "bytes": 300, "sha256": sha256, "python": None}]
    assert content["split_rule"] == {
        "rule": "tail_of_the_document",
        "threshold": 0.1,
        "val_fraction": 0.1,
        "val_max_bytes": 10_000_000,
    }
    assert content["files"]["val-00000.bin"] == {"size": 16 + 2 * 30, "sha256": sha256_of(prepared, "val-00000.bin")}
    prepared.verify()


def test_prepared_data_inside_the_source_folder_is_not_text(tmp_path: Path, section: Section) -> None:
    section(tmp_path, POEMS)
    data = DataSection(source=str(tmp_path), dir=str(tmp_path / "prepared"))
    assert prepare(data, CHAR).path == prepare(data, CHAR).path


def test_the_report_counts_what_was_read_and_what_was_skipped(tmp_path: Path, section: Section) -> None:
    data = section(tmp_path, POEMS)
    (tmp_path / "texts" / "x.png").write_bytes(b"\0")
    lines: list[str] = []
    prepare(data, CHAR, lines.append)
    size = sum(len(text.encode()) for text in POEMS.values())
    assert lines == [f"texts: 60 files, {size:,} bytes of text (skipped: 1 binary file: x.png)"]


def test_a_tokenizer_with_fewer_merges_than_asked_is_recorded_and_warned_about(
    tmp_path: Path, section: Section
) -> None:
    lines: list[str] = []
    prepared = prepare(
        section(tmp_path, {"a.txt": "ab" * 100}), TokenizerSection(kind="bpe", vocab_size=5000), lines.append
    )
    record = prepared.manifest.tokenizer
    assert record.requested_vocab_size == 5000
    assert record.vocab_size == prepared.tokenizer().vocab_size < 300
    assert lines[1].startswith(
        f"warning: tokenizer.vocab_size is 5000, but the training text has only merges for {record.vocab_size} ids. "
    )


def test_a_folder_without_a_manifest_hides_no_finished_one(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("abc " * 500)
    data = DataSection(source=str(tmp_path / "t.txt"), dir=str(tmp_path / "data"))
    made = prepare(data, CHAR, name="b").path
    made.with_name(made.name.replace("b-", "a-", 1)).mkdir()  # as a copy that was broken off leaves it
    assert prepare(data, CHAR).path == made
    assert len(list(made.parent.glob("*-*/MANIFEST.json"))) == 1

"""The report on a prepared text, counted by hand."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptlite.cli.prepare import summarize
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.dataset.tokens import detokenize
from gptlite.data.preparing import encode
from gptlite.data.preparing.prepare import prepare
from gptlite.errors import DataError

Section = Callable[..., DataSection]
CHAR = TokenizerSection(kind="char")


def test_the_report_of_a_character_text(tmp_path: Path, section: Section) -> None:
    train = "abcdefghij" * 90
    made = prepare(section(tmp_path, {"book.txt": train + "abcdefghij" * 6 + "x" * 20 + "é" * 10}), CHAR)
    report = made.manifest.report
    assert made.manifest.val.bytes == 100
    assert (report.used_ids, report.val_only, report.n_val_only, report.merges) == (10, "xé", 2, ())
    assert report.longest == (("book.txt", 1000),)
    lines = "\n".join(summarize(made.manifest))
    assert "vocabulary      10 of 12 ids are in the training text" in lines
    assert "unseen          2 characters only in the validation text: xé" in lines
    assert "longest" not in lines


def test_the_longest_documents_are_named_and_copies_are_counted(tmp_path: Path, section: Section) -> None:
    lines = "".join(f'{{"text": "{"z" * (n % 17)}{n}"}}\n' for n in range(100)) + '{"text": "zz2"}\n' * 3
    made = prepare(section(tmp_path, {"a.jsonl": lines}), CHAR)
    report = made.manifest.report
    # documents of 16 letters z and two digits, first come first
    assert report.longest == tuple((f"a.jsonl:{line}", 18) for line in (17, 34, 51))
    assert report.copies == 3
    assert "longest         a.jsonl:17 (18 bytes), a.jsonl:34 (18 bytes)" in "\n".join(summarize(made.manifest))


@pytest.mark.parametrize(
    ("keys", "name", "copy"),
    [
        ({}, "b.txt", "tête\n".encode()),
        ({}, "b.txt", "\ufefftête\n".encode()),
        ({}, "b.txt.gz", gzip.compress("tête\n".encode(), mtime=0)),
        ({"normalize": "nfc"}, "b.txt", "te\u0302te\n".encode()),
        ({"errors": "replace"}, "b.txt", b"t\xeate\n"),
        ({"separator": "---"}, "b.txt", "---tête\n---".encode()),
    ],
)
def test_copies_are_documents_with_the_same_text_whatever_the_bytes_of_their_files(
    tmp_path: Path, section: Section, keys: dict[str, Any], name: str, copy: bytes
) -> None:
    text = "t\ufffdte\n" if "errors" in keys else "tête\n"
    data = section(tmp_path, {"a.txt": text} | {f"{n}.txt": f"{n}\n" for n in range(40)}, **keys)
    (Path(data.source) / name).write_bytes(copy)
    assert prepare(data, CHAR).manifest.report.copies == 1


@pytest.mark.parametrize("deduplicate", [False, True])
def test_documents_of_the_validation_text_are_withheld_from_training(
    tmp_path: Path, section: Section, deduplicate: bool
) -> None:
    (tmp_path / "val.txt").write_text("b\nee\nb\n")
    data = section(
        tmp_path,
        {"lines.txt": "aaaa\nb\ncccc\nb\naaaa\nee\n"},
        documents="lines",
        val_source=str(tmp_path / "val.txt"),
        deduplicate=deduplicate,
    )
    said: list[str] = []
    made = prepare(data, CHAR, said.append)
    text = {name: b"".join(detokenize(made.split(name), made.tokenizer(), separator=b"|")) for name in ("train", "val")}
    assert text == {
        "train": b"|aaaa|cccc" if deduplicate else b"|aaaa|cccc|aaaa",
        "val": b"|b|ee" if deduplicate else b"|b|ee|b",
    }
    assert (made.manifest.report.withheld, made.manifest.report.copies) == (3, 0 if deduplicate else 2)
    assert "skipped 3 training documents that the validation text has, too" in said
    assert "skipped         3 training documents that the validation text has, too" in "\n".join(
        summarize(made.manifest)
    )


def test_a_training_text_that_is_all_in_the_validation_text_is_refused(tmp_path: Path, section: Section) -> None:
    data = section(tmp_path, {"a.txt": "the same text\n" * 9})
    data = data.model_copy(update={"val_source": data.source})
    with pytest.raises(DataError, match=r"a\.txt: the text has 126 bytes, too few for a training and a"):
        prepare(data, CHAR)
    assert not list((tmp_path / "prepared").glob("a-*"))


def test_the_merges_that_save_most_come_first(tmp_path: Path, section: Section) -> None:
    words = "the cat sat on the mat and the cat ran. " * 30
    made = prepare(section(tmp_path, {"a.txt": words}), TokenizerSection(kind="bpe", vocab_size=270))
    tokens, pieces = made.split("train"), made.tokenizer().token_bytes()
    ids = tokens.read(0, tokens.n_tokens).tolist()
    saved = {pieces[i].decode(): ids.count(i) * (len(pieces[i]) - 1) for i in set(ids)}
    best = sorted(saved.values(), reverse=True)[:8]
    assert [saved[merge.replace("␣", " ")] for merge in made.manifest.report.merges] == best


def test_pieces_cut_for_want_of_a_better_place_are_counted(
    tmp_path: Path, section: Section, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(encode, "LONGEST", 1000)
    section_of = {"a.txt": "x" * 10_000}
    made = prepare(section(tmp_path, section_of), TokenizerSection(kind="bpe", vocab_size=300))
    assert made.manifest.report.forced_cuts > 0
    assert "had to be cut" in "\n".join(summarize(made.manifest))

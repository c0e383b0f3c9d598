"""Records, lines and parts as documents, compressed or not. Expected texts are written by hand."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from gptlite.config.schema import DataSection
from gptlite.data.sources.documents import Skipped, describe_reading, fingerprint_fields, split_at, with_documents
from gptlite.data.sources.sources import open_source
from gptlite.errors import DataError


def read(path: Path, **how: str) -> list[str]:
    return [document.text for document in open_source(str(path), DataSection(**how)).documents()]


def said(path: Path, **how: str) -> list[str]:
    source = open_source(str(path), DataSection(**how))
    return list(describe_reading(source.files, source.reading, asked=how.get("documents")))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


LINES = '{"text": "one", "n": 1}\n\n{"text": "two\\nlines"}\r\n{"text": null}\n{"text": "  "}\n"three"\n'


def test_the_records_of_json_lines_are_documents_without_empty_ones(tmp_path: Path) -> None:
    path, skipped = write(tmp_path / "a.jsonl", LINES), Skipped()
    found = [(each.file, each.line, each.text) for each in open_source(str(path)).documents(skipped)]
    assert found == [("a.jsonl", 1, "one"), ("a.jsonl", 3, "two\nlines"), ("a.jsonl", 6, "three")]
    assert skipped == {("empty record", ""): 2}


def test_a_field_may_lie_in_a_nested_record(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": {"b": "x"}}\n{"a": {"b": "y"}}')
    assert read(path, field="a.b") == ["x", "y"]


def test_messages_become_a_line_for_each_role(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}]
    path = write(tmp_path / "chat.jsonl", json.dumps({"messages": messages}))
    assert read(path) == ["user: Hi?\nassistant: Hello.\n"]


@pytest.mark.parametrize("content", ['[{"text": "one"}, {"text": "two"}]', '[\n"one",\n"two"]'])
def test_a_list_of_json_gives_a_document_for_each_record(tmp_path: Path, content: str) -> None:
    assert read(write(tmp_path / "a.json", content)) == ["one", "two"]


def test_rows_of_csv_and_tsv_are_documents(tmp_path: Path) -> None:
    rows = '\ufeffid,text\n1,"a ""b"", c"\n2,"two\nlines"\n\n3,\n'
    assert read(write(tmp_path / "a.csv", rows)) == ['a "b", c', "two\nlines"]
    assert read(write(tmp_path / "a.TSV", "text\tn\nx, y\t1\n")) == ["x, y"]
    long = "x" * 200_000  # more than csv's own limit
    assert read(write(tmp_path / "b.csv", f"review\n{long}\n"), column="review") == [long]


def test_lines_are_documents_where_asked_for(tmp_path: Path) -> None:
    # U+2028 separates lines for str.splitlines, but not here.
    path = write(tmp_path / "names.txt", "Ada\r\n\nBob\u2028by\nZoë")
    assert read(path, documents="lines") == ["Ada", "Bob\u2028by", "Zoë"]
    wide = write(tmp_path / "wide.txt", "Ada\nBob\n".encode("utf-16"))
    assert read(wide, documents="lines", encoding="utf-16") == ["Ada", "Bob"]


def test_a_separator_cuts_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\n---\ntwo\n---\n\n---\nthree\n")
    assert read(path, separator="---\n") == ["one\n", "two\n", "three\n"]


def test_compressed_files_are_read_as_if_they_were_not(tmp_path: Path) -> None:
    raw = LINES.encode()
    compressed = {"gz": gzip.compress(raw), "xz": lzma.compress(raw), "zst": zstandard.compress(raw)}
    for ending, content in compressed.items():
        path = write(tmp_path / f"a.jsonl.{ending}", content)
        assert read(path) == ["one", "two\nlines", "three"]
        assert read(path, documents="files") == [LINES]
        assert open_source(str(path)).count_bytes() == len("one" + "two\nlines" + "three")


def test_compressed_text_in_a_folder_is_not_a_binary_file(tmp_path: Path) -> None:
    write(tmp_path / "a.txt.gz", gzip.compress(b"text"))
    write(tmp_path / "b.gz", gzip.compress(b"\0\1\0\0"))
    write(tmp_path / "c.bz2", bz2.compress(b"not read"))
    write(tmp_path / "d.txt", "plain")
    skipped = Skipped()
    assert [each.text for each in open_source(str(tmp_path)).documents(skipped)] == ["text", "plain"]
    assert skipped == {("binary file", "b.gz"): 1, ("bzip2 file", "c.bz2"): 1}


@pytest.mark.parametrize(
    ("name", "content", "how", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"body": 1, "id": 1}\n', {}, "l:2: .* no field text: it has the fields body, id"),
        ("a.jsonl", '{"a": {"c": 1}}', {"field": "a.b"}, r"no field a\.b: it has the fields a\."),
        ("a.jsonl", '{"a": "x"}', {"field": "a.b"}, r"no field a\.b: it has the fields a\."),
        ("a.jsonl", '{"text": 5}', {}, r"a\.jsonl:1: the field text is 5, not a text"),
        ("a.jsonl", '{"text": "x"}\n{"text": \n', {}, r"a\.jsonl:2: this is not valid JSON"),
        ("a.jsonl", '{"text": "\\ud800"}', {}, r"a\.jsonl:1: the character U\+D800 is half of a surrogate pair"),
        ("a.jsonl", '{"text": "a\\u0000"}', {}, r"a\.jsonl:1: this is not text but binary data"),
        ("a.jsonl", '{"messages": [{"role": "user"}]}', {}, "`messages` is not a list of objects with role"),
        ("a.jsonl", "[" * 100_000, {}, r"not valid JSON \(maximum recursion"),
        ("a.json", '[{"text": "x"}, {}]', {}, r"a\.json, record 2: the record has no field text: it is {}"),
        ("a.csv", "a,b\n1,2\n", {}, r"no single column text\. The first row names a, b; set data\.column"),
        ("a.csv", "text,text\n1,2\n", {}, r"no single column text"),
        ("a.csv", "", {}, r"no single column text\. The file is empty"),
        ("a.csv", "text,b\nx,1\ny\n", {}, r"a\.csv:3: the row has 1 value, and the first row names 2 columns"),
        ("a.csv", 'text\n"x', {}, r"a\.csv:2: the row is not valid"),
        ("a.txt", "x", {"documents": "records"}, r"the name does not say of which kind"),
        ("a.txt", "a\n\xff".encode("latin-1"), {"documents": "lines"}, r"t: the text is not valid utf-8 at byte 2"),
        ("a.txt.gz", gzip.compress(b"x" * 10_000, mtime=0)[:-9], {}, r"not a valid \.gz file \(Compressed file ended"),
        ("a.txt.gz", b"plain text", {}, r"this is not a valid \.gz file"),
        ("a.txt.xz", b"plain text", {}, r"this is not a valid \.xz file"),
        ("a.txt.zst", b"plain text", {}, r"this is not a valid \.zst file"),
        ("a.jsonl", "\n\n", {}, r"there is no text here"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, name, content, how, message) -> None:
    with pytest.raises(DataError, match=message):
        read(write(tmp_path / name, content), **how)


def test_invalid_bytes_are_replaced_only_where_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"caf\xe9 x")
    assert read(path, errors="replace") == ["caf\ufffd x"]
    with pytest.raises(DataError, match="not valid utf-8 at byte 3"):
        read(path)


def test_it_is_said_how_records_are_read_and_what_is_in_doubt(tmp_path: Path) -> None:
    (line,) = said(write(tmp_path / "a.jsonl", LINES))
    assert line.startswith("each record is a document, with its text in the field text (data.field);")
    (line,) = said(write(tmp_path / "a.csv", "text\nx\n"))
    assert "each record is a document, with its text in the column text (data.column);" in line
    (line,) = said(write(tmp_path / "names.txt", "Ada\nBob\n" * 100))
    assert "use data.documents=lines" in line
    assert said(tmp_path / "names.txt", documents="files") == []
    prose = "A line that is longer than forty characters, as in prose.\n"
    assert said(write(tmp_path / "prose.txt", prose * 200)) == []
    (line,) = said(tmp_path)
    assert line.startswith("warning: a.csv, a.jsonl may hold records, but beside other files each is text.")


def test_a_folder_of_records_alone_is_read_as_records_and_one_with_other_files_as_text(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", '{"text": "one"}')
    write(tmp_path / "b.csv", "text\ntwo\n")
    assert read(tmp_path) == ["one", "two"]
    write(tmp_path / "main.py", "print()")
    assert read(tmp_path) == ['{"text": "one"}', "text\ntwo\n", "print()"]


def test_the_name_of_the_field_decides_the_fingerprint_only_where_it_acts() -> None:
    assert fingerprint_fields(with_documents(DataSection(field="x"), [Path("a.txt")])) == {}
    assert fingerprint_fields(with_documents(DataSection(field="x"), [Path("a.jsonl.gz")])) == {
        "documents": "records",
        "field": "x",
        "column": "text",
    }
    assert fingerprint_fields(with_documents(DataSection(separator="-"), [Path("a.txt")])) == {"separator": "-"}
    assert fingerprint_fields(with_documents(DataSection(errors="replace"), [Path("a.txt")])) == {"errors": "replace"}


def test_escaped_characters_are_composed_like_others(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "e\\u0301"}\n{"text": "e\u0301"}')
    assert read(path, normalize="nfc") == ["\u00e9", "\u00e9"]
    assert read(path) == ["e\u0301", "e\u0301"]


def test_a_field_that_nothing_reads_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("plain")
    source = open_source(str(tmp_path / "a.txt"), DataSection(field="body", column="text"))
    lines = list(describe_reading(source.files, source.reading, asked=None))
    assert lines == ["warning: data.field is body, which has no effect: the text is not read as records"]


@pytest.mark.parametrize("separator", ["---", "\n\n", "ab", "aab"])
def test_parts_between_separators_are_those_of_the_whole_text(separator: str) -> None:
    rng = random.Random(0)
    for _ in range(500):
        text = "".join(rng.choice(["a", "b", "-", "\n", separator]) for _ in range(rng.randrange(30)))
        ends = sorted(rng.randrange(len(text) + 1) for _ in range(3))
        pieces = [text[a:b] for a, b in pairwise([0, *ends, len(text)])]
        *parts, last = text.split(separator)
        assert list(split_at(separator, pieces)) == parts + [last] * (last != "")


def test_nul_far_behind_the_head_is_refused_and_the_file_named(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_bytes(b"text\n" * 10_000 + b"\0")
    with pytest.raises(DataError, match=r"long\.txt: this is not text but binary data: it has NUL characters\. "):
        read(tmp_path)


def test_a_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    text = "tête-à-tête 日本\n" * 200_000
    (tmp_path / "long.txt").write_text(text)
    (document,) = open_source(str(tmp_path / "long.txt")).documents()
    pieces = list(document.pieces)
    assert b"".join(pieces).decode() == text
    assert max(map(len, pieces)) <= 1 << 20 < len(text)


def test_a_text_comes_before_the_messages_beside_it(tmp_path: Path) -> None:
    record = {"text": "rendered", "messages": [{"role": "user", "content": "Hi?"}]}
    assert read(write(tmp_path / "chat.jsonl", json.dumps(record))) == ["rendered"]

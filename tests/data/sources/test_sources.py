from __future__ import annotations

import os
import platform
import re
import sysconfig
from pathlib import Path

import pytest

from gptlite.config.schema import DataSection
from gptlite.data.sources.documents import Skipped, describe_skipped
from gptlite.data.sources.sources import absolute_spec, open_source
from gptlite.errors import DataError


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def texts(spec: Path | str, **options: str) -> dict[str, str]:
    found = open_source(str(spec), DataSection(**options)).documents()
    return {document.file: document.text for document in found}


def test_a_folder_is_searched_in_sorted_order_without_hidden_binary_and_empty_files(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"b/2.txt": "two", "b.txt": "b", "a.txt": "a\r\n", ".git/x": "no", ".hidden": "no", "c.png": b"\0\1", "e": ""},
    )
    source, skipped = open_source(str(tmp_path)), Skipped()
    found = [(document.file, document.text) for document in source.documents(skipped)]
    assert found == [("a.txt", "a\r\n"), ("b.txt", "b"), ("b/2.txt", "two")]
    assert sorted(skipped) == [("binary file", "c.png"), ("empty file", "e")]
    assert (source.spec, source.name) == (str(tmp_path), tmp_path.name)


def test_of_the_files_that_are_skipped_three_of_a_kind_are_named_on_one_line() -> None:
    names = [("binary file", name) for name in ("d.png", "c.png", "b\n.png", "a.png")]
    skipped = Skipped([*names, ("empty file", "x, y"), *[("empty line", "")] * 1200])
    assert describe_skipped(skipped) == (
        r' (skipped: 4 binary files: a.png, "b\n.png", c.png and 1 more; 1 empty file: x, y; 1,200 empty lines)'
    )
    assert describe_skipped(Skipped()) == ""


def test_a_linked_folder_is_searched_once_even_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, {"in/a.txt": "a", "out/b.txt": "b"})
    (tmp_path / "in/back").symlink_to(tmp_path / "in")
    (tmp_path / "in/there").symlink_to(tmp_path / "out")
    assert texts(tmp_path / "in") == {"a.txt": "a", "there/b.txt": "b"}


RUN = {"config.yaml": "x", "run.json": "{}", "checkpoints/step-1/state.json": "{}"}
PREPARED = {"MANIFEST.json": "{}", "train-00000.bin": "x", "tokenizer/tokenizer.json": "{}"}


def test_runs_and_prepared_data_are_left_out(tmp_path: Path) -> None:
    files = {"a.txt": "a", "b/config.yaml": "no run", "b/MANIFEST.json": "not prepared"}
    write(tmp_path, files)
    write(tmp_path / "b/runs/small", RUN)
    write(tmp_path / "story-1234", PREPARED)
    write(tmp_path / "book-5678.tmp-9-abc", {"MANIFEST.json": "{}"})
    for spec in (tmp_path, tmp_path / "**/*"):
        assert texts(spec) == files


def test_a_run_that_is_named_is_read(tmp_path: Path) -> None:
    write(tmp_path / "runs/small", RUN)
    assert texts(tmp_path / "runs/small") == RUN
    assert texts(tmp_path / "runs/*/run.json", documents="files") == {"small/run.json": "{}"}
    with pytest.raises(DataError, match=r"there is no text here\. Choose plain text"):
        open_source(str(tmp_path / "runs"))


def test_a_glob_takes_files_and_is_named_without_the_path_before_it(tmp_path: Path) -> None:
    write(tmp_path, {"t/a.txt": "a", "t/x/b.txt": "b", "t/c.md": "c", "t/d.txt/e": "e"})
    assert texts(tmp_path / "t/**/*.txt") == {"a.txt": "a", "x/b.txt": "b"}
    assert open_source(str(tmp_path / "t/*.txt")).name == "t/*.txt"


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"a[1].txt": "one", "a1.txt": "other"})
    assert texts(tmp_path / "a[1].txt") == {"a[1].txt": "one"}


@pytest.mark.parametrize("name", ["a[1]", "what?", "*"])
def test_the_name_of_the_working_folder_is_no_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = write(tmp_path / name, {"in/x.txt": "x", "y.txt": "y"})
    write(tmp_path / "a1", {"in/z.txt": "z"})
    monkeypatch.chdir(folder)
    assert texts("**/*.txt") == {"in/x.txt": "x", "y.txt": "y"}
    source = open_source("../*/in/*.txt" if name == "a[1]" else "in/*.txt")
    assert {document.text for document in source.documents()} == ({"x", "z"} if name == "a[1]" else {"x"})
    monkeypatch.chdir(tmp_path)
    again = open_source(source.spec)
    assert (again.files, again.name) == (source.files, source.name)
    assert absolute_spec(source.spec) == source.spec


def test_a_path_wins_over_a_data_set_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"tinyshakespeare": "mine"})
    monkeypatch.chdir(tmp_path)
    assert texts("tinyshakespeare") == {"tinyshakespeare": "mine"}


def test_encoding_and_normal_form_apply(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "e\u0301\u00df".encode("utf-16")})
    assert texts(tmp_path / "a.txt", encoding="utf-16", normalize="nfc") == {"a.txt": "\u00e9\u00df"}
    assert texts(tmp_path, encoding="utf-16") == {"a.txt": "e\u0301\u00df"}


@pytest.mark.parametrize(
    ("files", "spec", "message"),
    [
        ({"e.txt": b"\xef\xbb\xbf"}, "e.txt", "{}/e.txt: there is no text here (skipped: 1 empty file: e.txt). "
            "Choose plain text, or save yours as .txt, .csv or .jsonl first."),
        (
            {"b.bin": b"\1\2\0\3"},
            "b.bin",
            "{}/b.bin: this is not text but binary data: it has NUL characters. Choose a text file.",
        ),
        (
            {"t/a.txt": "ok", "t/b.txt": b"\xe9"},
            "t",
            "{}/t/b.txt: the text is not valid utf-8 at byte 0. "
            "It may be cp1252: use data.encoding=cp1252.",
        ),
        (
            {"t/b": b"\0", "t/c": b"\0", "t/d": ""},
            "t",
            "{}/t: there is no text here (skipped: 2 binary files: b, c; 1 empty file: d). Choose plain text, or save "
            "yours as .txt, .csv or .jsonl first.",
        ),
        ({"t/.a": "x"}, "t", "{}/t: there is no text here. Choose plain text, or "
            "save yours as .txt, .csv or .jsonl first."),
        ({"book.txt": "x"}, "bok.txt", "data.source: there is no file, folder or data set named {}/bok.txt. "
            "Did you mean book.txt?"),
        ({"a": "x"}, "*.txt", "data.source: no file matches {}/*.txt. Check the path; the data sets are "
            "python-stdlib, tinyshakespeare."),
    ],
)  # fmt: skip
def test_sources_without_text_are_refused(tmp_path: Path, files: dict[str, str], spec: str, message: str) -> None:
    write(tmp_path, files)
    with pytest.raises(DataError, match=f"^{re.escape(message.format(tmp_path))}$"):
        texts(tmp_path / spec)


def test_a_misspelt_data_set_gets_a_suggestion() -> None:
    with pytest.raises(DataError, match=r"^data.source: .* named tinyshakspeare\. Did you mean tinyshakespeare\?$"):
        open_source("tinyshakspeare")
    with pytest.raises(DataError, match=r"Check the path; the data sets are python-stdlib, tinyshakespeare\."):
        open_source("/nowhere/zzzzzzzz")


def test_a_text_given_as_a_path_is_one_line_of_error() -> None:
    with pytest.raises(
        DataError, match=r"^data.source: x{80} cannot be read \(File name too long\)\. Check the path\.$"
    ):
        open_source("x" * 5000)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        DataError, match=r"this is a pipe or device, and text is read more than once\. Save it to a file\."
    ):
        open_source(str(tmp_path / "pipe"))


def test_a_file_that_was_removed_is_a_data_error(tmp_path: Path) -> None:
    source = open_source(str(write(tmp_path, {"a.txt": "a"}) / "a.txt"))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(DataError, match=r"a\.txt: the file cannot be read \(No such file or directory\)\. "):
        list(source.documents())


def test_the_library_comes_without_its_tests_and_names_the_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = [
        "test/a.py",
        "json/tests/b.py",
        "idlelib/idle_test/c.py",
        "pydoc_data/topics.py",
        "site-packages/p/q.py",
    ]
    kept = {"os.py": "import sys\n", "json/__init__.py": "x = 1\n", "unittest/case.py": "y\n"}
    write(tmp_path, dict.fromkeys(left_out, "no") | kept | {"a.txt": "no", "json/empty.py": ""})
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    source = open_source("python-stdlib")
    assert {document.file: document.text for document in source.documents()} == kept
    assert (source.spec, source.name, source.python) == ("python-stdlib", "python-stdlib", platform.python_version())


def test_the_real_library_is_found() -> None:
    names = {path.relative_to(sysconfig.get_path("stdlib")).as_posix() for path in open_source("python-stdlib").files}
    assert {"os.py", "argparse.py", "json/decoder.py"} <= names
    assert len(names) > 400

"""Texts that are not a plain file: records, lines, compressed files, standard input."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import pytest

STORY = "the cat sat on the mat and the dog sat on the log and they were friends. "


def write_records(path: Path, field: str) -> None:
    lines = [json.dumps({field: f"{number}: {STORY * 3}", "id": number}) for number in range(60)]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


def test_records_are_understood_and_said(gptlite, tmp_path: Path) -> None:
    write_records(tmp_path / "dump.jsonl.gz", "body")
    assert gptlite("prepare", "-c", "nano.yaml", "--data", "dump.jsonl.gz").refuses("has the fields body, id")
    result = gptlite("prepare", "-c", "nano.yaml", "--data", "dump.jsonl.gz", "--set", "data.field=body")
    assert result.code == 0
    assert "dump.jsonl.gz: 1 file, 60 documents" in result.err
    assert "with its text in the field body (data.field)" in result.err
    assert "validation is whole documents" in result.out
    before = len(list((tmp_path / "data/prepared").glob("dump*")))
    gptlite("prepare", "-c", "nano.yaml", "--data", "dump.jsonl.gz", "--set", "data.documents=files")
    assert len(list((tmp_path / "data/prepared").glob("dump*"))) == before + 1


def test_a_model_is_trained_on_each_line_as_a_text(gptlite, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(f"{STORY}{number}" for number in range(60)))
    result = gptlite("train", "-c", "nano.yaml", "--data", "lines.txt", "--set", "data.documents=lines", "--name", "a")
    assert result.code == 0
    assert "60 documents" in result.err
    assert gptlite("sample", "a", "-t", "1").code == 0


def test_standard_input_is_a_text(gptlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    send(STORY * 40)
    assert gptlite("train", "-c", "nano.yaml", "--data", "-", "--name", "b").code == 0
    (kept,) = (tmp_path / "data/stdin").glob("*.txt")
    assert kept.read_text() == STORY * 40
    send("")
    assert gptlite("prepare", "--data", "-").refuses("--data -: standard input has no text")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert gptlite("prepare", "--data", "-").refuses("several processes cannot share standard input")


def test_a_separator_is_refused_where_it_would_not_act(gptlite) -> None:
    assert gptlite("prepare", "--set", "data.separator=--", "--set", "data.documents=lines").refuses("data.separator")


def test_records_are_not_scored_as_plain_text(gptlite, trained: Path, tmp_path: Path) -> None:
    write_records(tmp_path / "dump.jsonl.gz", "text")
    assert gptlite("eval", "--file", "dump.jsonl.gz").refuses("this file holds records")


def test_named_texts_are_listed_with_what_is_on_the_disk(gptlite, tmp_path: Path) -> None:
    listed = gptlite("prepare", "--list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["python-stdlib", "tinyshakespeare"]
    assert "(1.1 MiB, public domain text), downloaded when it is first used" in listed[1]
    (tmp_path / "data/downloads").mkdir(parents=True)
    (tmp_path / "data/downloads/tinyshakespeare.txt").touch()
    assert "in data/downloads/tinyshakespeare.txt" in gptlite("prepare", "--list").out


@pytest.mark.parametrize("command", [["prepare"], ["train"], ["train", "--dry-run"], ["train", "--minutes", "1"]])
def test_offline_a_missing_text_is_named_with_its_place(gptlite, tmp_path: Path, command: list[str]) -> None:
    config = ["-c", "nano.yaml"] if "--minutes" not in command else []
    result = gptlite(*command, *config, "--offline", "--data", "tinyshakespeare")
    assert result.code == 4
    assert result.errors == [
        "--data: downloads are forbidden (--offline, GPTLITE_OFFLINE=1). Put the file "
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt at "
        "data/downloads/tinyshakespeare.txt."
    ]
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "runs").exists()


def test_validation_text_of_its_own(gptlite, tmp_path: Path) -> None:
    (tmp_path / "val.txt").write_text("the mat and the log were friends. " * 10)
    by_itself = ["-c", "nano.yaml", "--set", "data.val_source=val.txt"]
    result = gptlite("prepare", *by_itself)
    assert "split           validation is the text of data.val_source" in result.out
    whole = len((tmp_path / "story.txt").read_bytes())
    assert f"{whole:,} bytes" in next(line for line in result.out.splitlines() if line.startswith("training"))
    assert "340 bytes" in next(line for line in result.out.splitlines() if line.startswith("validation"))
    assert gptlite("train", *by_itself, "--name", "c").code == 0
    assert f"val_source: {tmp_path / 'val.txt'}" in (tmp_path / "runs/c/config.yaml").read_text()
    assert gptlite("train", *by_itself, "--name", "c", "--continue").code == 0
    assert gptlite("train", "--minutes", "0.02", "--data", "story.txt", *by_itself[2:], "--dry-run").code == 0
    assert gptlite("prepare", *by_itself, "--set", "data.val_fraction=0.2").refuses("which then do nothing")
    assert gptlite("prepare", *by_itself[:-1], "data.val_source=none.txt").refuses("data.val_source: there is no file")

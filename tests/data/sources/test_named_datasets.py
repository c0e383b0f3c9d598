from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from gptlite.cli.prepare import list_named_texts
from gptlite.config.schema import DataSection, TokenizerSection
from gptlite.data.preparing.fingerprint import compute_fingerprint, open_sources
from gptlite.data.preparing.prepare import prepare
from gptlite.data.sources import named_datasets
from gptlite.data.sources.sources import open_source
from gptlite.errors import DataError, StorageError

TEXT = "To be, or not to be\n"


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[dict[str, bytes]], str]) -> Path:
    """A card "plays", whose text is served from the file that is returned."""
    url = serve({"plays.txt": TEXT.encode()}) + "plays.txt"
    folder = tmp_path / "cards"
    folder.mkdir()
    card = {"name": "plays", "about": "plays", "urls": f"[{url}]", "licence": "none", "bytes": len(TEXT)}
    card["sha256"] = hashlib.sha256(TEXT.encode()).hexdigest()
    (folder / "plays.yaml").write_text("".join(f"{key}: {value}\n" for key, value in card.items()))
    monkeypatch.setattr(named_datasets, "builtin_folder", lambda kind: folder)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "served/plays.txt"


def test_a_data_set_is_downloaded_once(plays: Path, tmp_path: Path) -> None:
    source = open_source("plays")
    assert not Path("data").exists()
    source.fetch()
    plays.unlink()
    again = open_source("plays")
    again.fetch()
    assert [document.text for document in again.documents()] == [TEXT]
    assert (source.spec, source.name) == ("plays", "plays")
    assert source == again


def test_a_failed_download_names_the_url_and_the_place_for_the_file(plays: Path, tmp_path: Path) -> None:
    plays.unlink()
    place = "data/downloads/plays.txt"
    message = rf"^data\.source: downloading http.*/plays\.txt failed .*, or put the file at {place} yourself\.$"
    with pytest.raises(StorageError, match=message):
        open_source("plays").fetch()


def test_a_prepared_data_set_needs_no_download(
    plays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[dict[str, bytes]], str]
) -> None:
    text = "".join(f"line {number}\n" for number in range(99))
    card = tmp_path / "cards/plays.yaml"
    sha256 = hashlib.sha256(TEXT.encode()).hexdigest()
    new = card.read_text().replace(sha256, hashlib.sha256(text.encode()).hexdigest())
    card.write_text(new.replace(f"bytes: {len(TEXT)}", f"bytes: {len(text)}"))
    plays.write_text(text)
    data, tokenizer, lines = DataSection(source="plays", dir="prepared"), TokenizerSection(kind="char"), list[str]()
    made = prepare(data, tokenizer, lines.append)
    assert lines[0].startswith("downloading http://")
    Path("data/downloads/plays.txt").unlink()
    monkeypatch.setenv("GPTLITE_OFFLINE", "1")
    assert prepare(data, tokenizer).path == made.path
    assert compute_fingerprint(data, tokenizer) == made.manifest.fingerprint
    assert [source.count_bytes() for source in open_sources(data)] == [len(text)]
    made.path.rename("elsewhere")
    with pytest.raises(
        StorageError, match=r"^data\.source: downloads are forbidden .* at data/downloads/plays\.txt\.$"
    ):
        prepare(data, tokenizer)
    (tmp_path / "own.txt").write_text(TEXT)
    with pytest.raises(StorageError, match=r"^data\.val_source: downloads are forbidden"):
        prepare(DataSection(source="own.txt", val_source="plays", dir="prepared"), tokenizer)


def test_a_file_put_there_by_hand_must_be_the_text(plays: Path, tmp_path: Path) -> None:
    (tmp_path / "data/downloads").mkdir(parents=True)
    (tmp_path / "data/downloads/plays.txt").write_text("short")
    message = r"plays\.txt: this is not the text of plays: its sha256 begins with [0-9a-f]{12}, not with .*\. Delete it"
    with pytest.raises(DataError, match=message):
        prepare(DataSection(source="plays", dir="prepared"), TokenizerSection(kind="char"))


@pytest.mark.parametrize(
    ("said", "given", "expected"),
    [
        ({}, {}, [TEXT]),
        ({"documents": "lines"}, {}, [TEXT.strip()]),
        ({"separator": '", "'}, {}, ["To be", "or not to be\n"]),
        ({"separator": '", "'}, {"documents": "files"}, [TEXT]),
        ({"documents": "lines"}, {"separator": "or"}, ["To be, ", " not to be\n"]),
    ],
)
def test_a_card_says_what_a_document_is_unless_the_config_does(
    plays: Path, tmp_path: Path, said: dict[str, str], given: dict[str, Any], expected: list[str]
) -> None:
    card = tmp_path / "cards/plays.yaml"
    plain = compute_fingerprint(DataSection(source="plays", dir=str(tmp_path)), TokenizerSection())
    card.write_text(card.read_text() + "".join(f"{key}: {value}\n" for key, value in said.items()))
    data = DataSection(source="plays", dir=str(tmp_path), **given)
    source = open_source("plays", data)
    source.fetch()
    assert [document.text for document in source.documents()] == expected
    assert (compute_fingerprint(data, TokenizerSection()) == plain) == (expected == [TEXT])


def test_what_a_card_says_of_documents_is_listed(
    plays: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = tmp_path / "cards/plays.yaml"
    card.write_text(card.read_text() + "documents: lines\n")
    with pytest.raises(typer.Exit):
        list_named_texts(True)
    assert "plays (0.0 KiB, none, documents: lines), downloaded" in capsys.readouterr().out


def test_shipped_cards_are_complete() -> None:
    for card in named_datasets.cards():
        assert re.fullmatch("[0-9a-f]{64}", card.sha256)
        assert card.urls
        assert card.reading in ({}, {"documents": "lines"}) or list(card.reading) == ["separator"]
        assert all(url.startswith("https://") for url in card.urls)
    assert "tinyshakespeare" in [card.name for card in named_datasets.cards()]

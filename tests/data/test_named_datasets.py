from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlite.data import named_datasets
from gptlite.data.sources import open_source
from gptlite.errors import DataError, StorageError

TEXT = "To be, or not to be\n"


@pytest.fixture
def plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Callable[[dict[str, bytes]], str]) -> Path:
    """A card "plays", whose text is served from the file that is returned."""
    url = serve({"plays.txt": TEXT.encode()}) + "plays.txt"
    folder = tmp_path / "cards"
    folder.mkdir()
    card = {"name": "plays", "about": "plays", "url": url, "licence": "none", "bytes": len(TEXT)}
    card["sha256"] = hashlib.sha256(TEXT.encode()).hexdigest()
    (folder / "plays.yaml").write_text("".join(f"{key}: {value}\n" for key, value in card.items()))
    monkeypatch.setattr(named_datasets, "builtin_folder", lambda kind: folder)
    return tmp_path / "served/plays.txt"


def test_a_data_set_is_downloaded_once(plays: Path, tmp_path: Path) -> None:
    source = open_source("plays", downloads=tmp_path / "d/downloads")
    plays.unlink()
    again = open_source("plays", downloads=tmp_path / "d/downloads")
    assert [document.text for document in again.documents()] == [TEXT]
    assert (source.spec, source.name) == ("plays", "plays")
    assert source == again


def test_a_failed_download_names_the_url_and_the_place_for_the_file(plays: Path, tmp_path: Path) -> None:
    plays.unlink()
    place = re.escape(str(tmp_path / "d/plays.txt"))
    message = rf"^data\.source: downloading http.*/plays\.txt failed .*, or put the file at {place} yourself\.$"
    with pytest.raises(StorageError, match=message):
        open_source("plays", downloads=tmp_path / "d")


@pytest.mark.parametrize("sent", [TEXT + "more", TEXT[:-1] + "!", ""])
def test_another_text_is_refused_and_not_kept(plays: Path, tmp_path: Path, sent: str) -> None:
    plays.write_text(sent)
    with pytest.raises(StorageError, match="sent another file"):
        open_source("plays", downloads=tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_file_put_there_by_hand_must_be_the_text(plays: Path, tmp_path: Path) -> None:
    (tmp_path / "plays.txt").write_text("short")
    with pytest.raises(
        DataError, match=r"plays\.txt: this is not the text of plays: it has 5 bytes, not 20\. Delete it"
    ):
        open_source("plays", downloads=tmp_path)
    card = named_datasets.find_card("plays")
    assert card is not None
    with pytest.raises(DataError, match=r"its sha256 begins with f{12}, not with [0-9a-f]{12}\. Delete it"):
        card.check_sha256(tmp_path / "plays.txt", "f" * 64)


def test_shipped_cards_are_complete() -> None:
    for name in named_datasets.card_names():
        card = named_datasets.find_card(name)
        assert card is not None
        assert card.name == name
        assert re.fullmatch("[0-9a-f]{64}", card.sha256)
        assert card.url.startswith("https://")
    assert "tinyshakespeare" in named_datasets.card_names()

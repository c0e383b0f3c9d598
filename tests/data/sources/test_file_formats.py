"""Files that are no plain text: what libraries write, and the first bytes that the other formats prescribe."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import wave
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gptlite.data.sources.documents import Skipped
from gptlite.data.sources.file_formats import format_of
from gptlite.data.sources.sources import open_source
from gptlite.errors import DataError


def zipped(names: Sequence[str], mimetype: str | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        if mimetype is not None:  # first and not compressed, say EPUB's and OpenDocument's standards
            archive.writestr("mimetype", mimetype, zipfile.ZIP_STORED)
        for name in names:
            archive.writestr(name, "<xml>some text</xml>" * 50)
    return file.getvalue()


def image(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (3, 2)).save(file, kind)
    return file.getvalue()


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return file.getvalue()


def wav() -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\1\0" * 100)
    return file.getvalue()


TYPES = "[Content_Types].xml"
FILES = {
    "PDF file": [b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj"],
    "RTF file": [rb"{\rtf1\ansi{\fonttbl\f0\fswiss Helvetica;}\f0\pard text\par}"],
    "old Word or other Office file": [bytes.fromhex("D0CF11E0A1B11AE1") + bytes(500)],  # [MS-CFB] 2.2
    "Word file": [zipped([TYPES, "_rels/.rels", "word/document.xml"]), zipped(["word/numbering.xml", TYPES])],
    "Excel file": [zipped([TYPES, "_rels/.rels", "xl/workbook.xml"])],
    "PowerPoint file": [zipped([TYPES, "ppt/presentation.xml"])],
    "EPUB file": [zipped(["META-INF/container.xml", "word/a.html"], "application/epub+zip")],
    "OpenDocument file": [zipped(["content.xml"], "application/vnd.oasis.opendocument.text")],
    "zip archive": [zipped(["a.txt", "b.txt"]), zipped([])],
    "7z archive": [b"7z\xbc\xaf\x27\x1c\x00\x04"],
    "RAR archive": [b"Rar!\x1a\x07\x00", b"Rar!\x1a\x07\x01\x00"],  # versions 4 and 5
    "tar archive": [tar()],
    "bzip2 file": [bz2.compress(b"text")],
    "gzip file": [gzip.compress(b"text")],
    "xz file": [lzma.compress(b"text")],
    "Zstandard file": [zstandard.compress(b"text")],
    "Parquet file": [b"PAR1\x15\x04\x15"],
    "image": [image(kind) for kind in ("PNG", "JPEG", "GIF", "TIFF", "WEBP")],
    "audio or video file": [wav(), b"ID3\x04\x00\x00", b"OggS\x00\x02", b"fLaC\x00\x00", b"\0\0\0\x20ftypM4A \0\0\2\0"],
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_is_recognised_whatever_its_name_and_refused_before_it_is_read(tmp_path: Path, kind: str) -> None:
    for content in FILES[kind]:
        path = tmp_path / "book.txt"
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"^{re.escape(str(path))}: this is an? {kind}\. Choose ") as refused:
            open_source(str(path))
        assert str(refused.value).count("\n") == 0
        (tmp_path / "book.txt.gz").write_bytes(gzip.compress(content))
        with pytest.raises(DataError, match=rf"book\.txt\.gz: this is an? {kind}\. "):
            open_source(str(tmp_path / "book.txt.gz"))


@pytest.mark.parametrize("kind", FILES)
def test_in_a_folder_it_is_skipped_and_named_and_if_nothing_else_is_there_refused(tmp_path: Path, kind: str) -> None:
    for number, content in enumerate(FILES[kind]):
        (tmp_path / f"{number}.dat").write_bytes(content)
    source = open_source(str(tmp_path))
    with pytest.raises(DataError, match=rf" \(skipped: \d {kind}s?: 0\.dat.*\)\. Choose ") as refused:
        list(source.documents())
    with pytest.raises(DataError, match=f"^{re.escape(str(refused.value))}$"):
        source.count_bytes()
    (tmp_path / "note.txt").write_text("text")
    source, skipped = open_source(str(tmp_path)), Skipped()
    assert [each.text for each in source.documents(skipped)] == ["text"]
    assert sorted(skipped) == [(kind, f"{number}.dat") for number in range(len(FILES[kind]))]
    assert source.count_bytes() == 4


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Co", "Cn"])).filter(lambda text: text[:1] not in "%{GP"))
def test_text_is_none_of_them_in_any_encoding(text: str) -> None:
    for encoding in ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1251", "koi8_r", "latin-1", "gb18030", "cp932"):
        assert format_of(text.encode(encoding, "replace")) is None

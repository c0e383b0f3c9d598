"""Tokenizers that several tests use, and the files of the gpt2 encoding if this machine has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gptlite.tokenizers.base import Tokenizer
from gptlite.tokenizers.bpe import BpeTokenizer, train_bpe

GPT2_FILES = ("6d1cbeee0f20b3d9449abfede4726ed8212e3aee", "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6")

# Prose, code, accents both ways, scripts with combining marks, digits of several kinds, white space of several kinds.
MIXED = (
    "It's the 'end', they'd say: we\u2019ll don't.\n\nIn 1984 and 123456789, 50% of (them) said\u00a0no\u2028yes.\n"
    "def f(self, _x):\n    if x == 'text':\n\t\treturn self._name[12]  # 3.14\r\n\r\n"
    "cafe\u0301 café \u0928\u092e\u0938\u094d\u0924\u0947 \u4e2d\u6587\u5b57 "
    "\u0663\u0664 \u2167 \u2764\ufe0f\U0001f600 <|endoftext|>\n"
)


@pytest.fixture(scope="session")
def bpe() -> BpeTokenizer:
    return train_bpe([MIXED * 3], 400)


@pytest.fixture
def gpt2_cache(monkeypatch: pytest.MonkeyPatch, repository: Path) -> Path:
    """The folder with the two files of the gpt2 encoding, as tiktoken's cache."""
    folder = repository.parent / "shared" / "tiktoken-cache"
    if not all((folder / name).exists() for name in GPT2_FILES):
        pytest.skip("the gpt2 encoding is not on this machine")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[Tokenizer], Path]:
    """Writes a tokenizer's files into a folder."""

    def save(tokenizer: Tokenizer) -> Path:
        folder = tmp_path / tokenizer.kind
        folder.mkdir()
        for name, content in tokenizer.files().items():
            (folder / name).write_bytes(content)
        return folder

    return save

"""tiktoken's ready-made encodings: gpt2, cl100k_base, o200k_base.

Their files come from tiktoken's cache, or by download the first time one is asked for. What is built from them is saved
like every tokenizer, and then needs neither.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gptlite.errors import StorageError
from gptlite.tokenizers.bpe import BpeTokenizer
from gptlite.tokenizers.folder import END_OF_TEXT

_HOST = "https://openaipublic.blob.core.windows.net"
_FILES = {
    "gpt2": (f"{_HOST}/gpt-2/encodings/main/vocab.bpe", f"{_HOST}/gpt-2/encodings/main/encoder.json"),
    "cl100k_base": (f"{_HOST}/encodings/cl100k_base.tiktoken",),
    "o200k_base": (f"{_HOST}/encodings/o200k_base.tiktoken",),
}
NAMES = tuple(_FILES)
TIMEOUT = 30.0  # seconds without a byte


def load_named(kind: str) -> BpeTokenizer:
    """One of NAMES, with tiktoken's ids; of its special tokens only end-of-text, so that this is the last id.

    StorageError, a line per missing file, when they are neither cached nor to be had.
    """
    from tiktoken_ext.openai_public import ENCODING_CONSTRUCTORS  # type: ignore[import-untyped]

    try:
        with _time_limit():
            parts = ENCODING_CONSTRUCTORS[kind]()
    except (OSError, ValueError) as error:  # no network, no space, no rights; or what came has the wrong checksum
        raise _unavailable(kind, error) from error
    ranks = sorted(parts["mergeable_ranks"], key=parts["mergeable_ranks"].__getitem__)
    vocab_size = parts["special_tokens"][END_OF_TEXT] + 1
    return BpeTokenizer(kind, parts["pat_str"], tuple(ranks), vocab_size, vocab_size)


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Let downloads give up: tiktoken asks without a time-out, and then the one of sockets does not count either."""
    import requests  # not before an encoding is asked for: it takes a tenth of a second

    usual = requests.get
    requests.get = functools.partial(usual, timeout=TIMEOUT)
    try:
        yield
    finally:
        requests.get = usual


def _unavailable(kind: str, error: OSError | ValueError) -> StorageError:
    folder = _cache_folder()
    now = f"now {folder}" if folder else "now empty, which switches the cache off"
    # The text of a network error runs over a hundred words about pools and retries; its name says enough.
    named_file = isinstance(error, OSError) and error.filename
    reason = f"{error.strerror}: {error.filename}" if named_file else type(error).__name__  # type: ignore[union-attr]
    names = {url: hashlib.sha1(url.encode()).hexdigest() for url in _FILES[kind]}  # as tiktoken names them
    missing = [url for url in names if not (folder and (folder / names[url]).exists())]
    return StorageError(
        [
            f"tokenizer.kind = {kind}: downloading {url} failed ({reason}); go online, or put the file as {names[url]} "
            f"into the folder that TIKTOKEN_CACHE_DIR names ({now})"
            for url in missing or names
        ]
    )


def _cache_folder() -> Path | None:
    """Where tiktoken looks, None if its cache is switched off."""
    default = str(Path(tempfile.gettempdir()) / "data-gym-cache")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR", default))
    return Path(folder) if folder else None

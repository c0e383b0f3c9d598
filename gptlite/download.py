"""Downloads, checked by sha256: a file appears under its name complete and correct, or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gptlite import files
from gptlite.errors import StorageError

TIMEOUT = 30.0  # seconds without a byte
_PIECE = 1 << 16


def download(url: str, path: Path, sha256: str, *, max_bytes: int, where: str) -> None:
    """Save the file at `url` as `path`. StorageError when that fails or another file arrives; `where` goes into it.

    Stops reading after `max_bytes`, so that an endless answer ends.
    """
    import requests  # takes a tenth of a second

    content = bytearray()
    try:
        with requests.get(url, timeout=TIMEOUT, stream=True) as response:
            response.raise_for_status()
            for piece in response.iter_content(_PIECE):
                content += piece
                if len(content) > max_bytes:
                    break
    except requests.RequestException as error:
        # The message of a failed connection runs over a hundred words about pools and retries.
        reason = type(error).__name__ if error.response is None else f"HTTP status {error.response.status_code}"
        raise StorageError(
            f"downloading {url} failed ({reason}). Go online, or put the file at {path} yourself.", where
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StorageError(
            f"{url} sent another file than the one expected (sha256 {sha256[:12]}...). "
            f"Try again, or put the file at {path} yourself.",
            where,
        )
    files.make_dirs(path.parent)
    files.replace(path, content)

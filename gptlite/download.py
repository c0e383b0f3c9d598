"""Downloads, checked by sha256: a file appears under its name complete and correct, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from gptlite import files
from gptlite.errors import StorageError

if TYPE_CHECKING:
    import requests

TIMEOUT = 30.0  # seconds without a byte
TOTAL_TIMEOUT = 1800.0  # seconds; 4 MB over a modem take ten minutes
_PIECE = 1 << 16
_LEFTOVER_AGE = 3600.0  # seconds; a file is written in far less


def download(url: str, path: Path, sha256: str, *, max_bytes: int, where: str) -> None:
    """Save the file at `url` as `path`. StorageError when that fails or another file arrives; `where` goes into it.

    Stops reading after `max_bytes`, so that an endless answer ends. An https address stays https when it is redirected.
    """
    content = _within_time(url, max_bytes, path, where)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StorageError(
            f"{url} sent another file than the one expected (sha256 {sha256[:12]}...). "
            f"Try again, or put the file at {path} yourself.",
            where,
        )
    files.make_dirs(path.parent)
    _remove_leftovers(path)
    files.replace(path, content)


def _within_time(url: str, max_bytes: int, path: Path, where: str) -> bytearray:
    """The content of the file. It is read in a thread, because a byte now and then is no silence and yet has no end."""
    import requests  # takes a tenth of a second

    content: Future[bytearray] = Future()

    def read() -> None:
        try:
            content.set_result(_read(url, max_bytes))
        except BaseException as error:
            content.set_exception(error)

    threading.Thread(target=read, daemon=True).start()
    try:
        return content.result(TOTAL_TIMEOUT)
    except TimeoutError:
        reason = f"it took more than {TOTAL_TIMEOUT:g} seconds"
    except requests.RequestException as error:
        # The message of a failed connection runs over a hundred words about pools and retries.
        reason = type(error).__name__ if error.response is None else f"HTTP status {error.response.status_code}"
        if isinstance(error, requests.exceptions.InvalidSchema):
            reason = str(error)
    raise StorageError(f"downloading {url} failed ({reason}). Go online, or put the file at {path} yourself.", where)


def _read(url: str, max_bytes: int) -> bytearray:
    import requests

    content, give_up_at = bytearray(), time.monotonic() + TOTAL_TIMEOUT
    plain = {"Accept-Encoding": "identity"}  # a compressed answer may be a thousand times larger than what is sent
    hooks = {"response": _refuse_downgrade}
    with requests.get(url, timeout=TIMEOUT, stream=True, headers=plain, hooks=hooks) as response:
        response.raise_for_status()
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return content  # it is not what was asked for
        for piece in response.iter_content(_PIECE):
            content += piece
            if len(content) > max_bytes or time.monotonic() > give_up_at:
                break
    return content


def _refuse_downgrade(response: requests.Response, **_: Any) -> None:
    """A hook that requests calls before it follows a redirect."""
    import requests

    target = urljoin(response.url, response.headers.get("Location", ""))
    if response.is_redirect and response.url.startswith("https:") and not target.startswith("https:"):
        raise requests.exceptions.InvalidSchema("redirected from https to an address without encryption")


def _remove_leftovers(path: Path) -> None:
    """Remove what killed downloads left of a file. It has no lock, so a young one may be that of another process."""
    for leftover in path.parent.glob(f"{path.name}{files.TEMP_MARK}*"):
        with contextlib.suppress(OSError, StorageError):
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_AGE:
                files.remove_tree(leftover)

"""Downloads, checked by sha256: a file appears under its name complete and correct, or not at all.

Until it is checked a file is in memory: the largest has 4 MB. Two processes may download it at once, each its own.
Proxies are those of the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gptlite.errors import StorageError
from gptlite.formatting import Say, say_nothing
from gptlite.storage import files

if TYPE_CHECKING:
    import requests

OFFLINE = "GPTLITE_OFFLINE"  # in the environment
TIMEOUT = 30.0  # seconds without a byte
PAUSES = (1.0, 4.0)  # seconds before each new try, after a failure that may pass
_PIECE = 1 << 16  # bytes
_BUSY = (408, 429, 500, 502, 503, 504)  # HTTP statuses that may pass


def is_offline() -> bool:
    """Return whether downloads are forbidden."""
    return os.environ.get(OFFLINE, "0") not in ("", "0")


def download(
    urls: Sequence[str], path: Path, sha256: str, *, max_bytes: int, where: str, say: Say = say_nothing
) -> None:
    """Save the file that is at each of `urls`, tried in this order, as `path`. A file of that name is replaced.

    Raise StorageError, about `where`, when that fails, another file arrives or GPTLITE_OFFLINE is set. An endless
    answer ends after `max_bytes`.
    """
    if is_offline():
        problem = f"downloads are forbidden (--offline, {OFFLINE}=1). Put the file {urls[0]} at {path}."
        raise StorageError(problem, where)
    failures = []
    for url in urls:
        try:
            content = _get(url, max_bytes, say)
        except ConnectionError as error:
            failures.append(f"downloading {url} failed ({error})")
            advice = "Go online"
            continue
        if hashlib.sha256(content).hexdigest() == sha256:
            files.make_dirs(path.parent)
            return files.replace(path, content)
        failures.append(f"{url} sent another file than the one expected (sha256 {sha256[:12]}...)")
        advice = "Try again"
    raise StorageError(f"{'; '.join(failures)}. {advice}, or put the file at {path} yourself.", where)


def _get(url: str, max_bytes: int, say: Say) -> bytes:
    """Return what is at an address, of more than `max_bytes` the beginning, after new tries where a failure may pass.

    Raise ConnectionError with the reason.
    """
    import requests

    say(f"downloading {url}")
    for pause in (*PAUSES, None):
        content = bytearray()
        try:
            with requests.get(url, timeout=TIMEOUT, stream=True) as response:
                response.raise_for_status()
                for piece in response.iter_content(_PIECE):
                    content += piece
                    if len(content) > max_bytes:
                        break
            return bytes(content)
        except requests.RequestException as error:
            reason, may_pass = _describe(error)
            if pause is None or not may_pass:
                raise ConnectionError(reason) from error
        say(f"{reason}; trying again")
        time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _describe(error: requests.RequestException) -> tuple[str, bool]:
    """Say in a few words, not in those of requests, what went wrong, and whether it may pass."""
    from urllib3.exceptions import ProtocolError, ReadTimeoutError

    if error.response is not None:
        return f"HTTP status {error.response.status_code}", error.response.status_code in _BUSY
    cause = error.args[0] if error.args else None
    if isinstance(cause, ProtocolError | ReadTimeoutError):
        return "the connection was lost" if isinstance(cause, ProtocolError) else "no answer", True
    return type(error).__name__, False

"""Downloads, checked by sha256: a file appears under its name complete and correct, or not at all.

Until it is checked a file is in memory: the largest has 4 MB. Two processes may download it at once, each its own.
Proxies are those of the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from gptlite.errors import StorageError
from gptlite.formatting import Say, say_nothing
from gptlite.storage import files

if TYPE_CHECKING:
    import requests

OFFLINE = "GPTLITE_OFFLINE"  # in the environment
TIMEOUT = 30.0  # seconds without a byte
TOTAL_TIMEOUT = 1800.0  # seconds of reading, over all addresses and tries; 4 MB over a modem take ten minutes
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
    answer ends after `max_bytes`, and an https address stays https when it is redirected.
    """
    if is_offline():
        problem = f"downloads are forbidden (--offline, {OFFLINE}=1). Put the file {urls[0]} at {path}."
        raise StorageError(problem, where)
    give_up_at = time.monotonic() + TOTAL_TIMEOUT
    failures = []
    for url in urls:
        try:
            content = _get(url, max_bytes, give_up_at, say)
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


def _get(url: str, max_bytes: int, give_up_at: float, say: Say) -> bytes:
    """Return what is at an address, after new tries where a failure may pass. Raise ConnectionError with a reason."""
    import requests
    import urllib3

    say(f"downloading {url}")
    for pause in (*PAUSES, None):
        try:
            return _receive(url, max_bytes, give_up_at)
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            reason, may_pass = _describe(error)
            if pause is None or not may_pass:
                raise ConnectionError(reason) from error
        say(f"{reason}; trying again")
        time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _receive(url: str, max_bytes: int, give_up_at: float) -> bytes:
    """Return the body of an answer, of a longer one the first bytes: one more than `max_bytes`."""
    import requests

    headers = {"Accept-Encoding": "identity"}  # a compressed answer may be a thousand times larger than what is sent
    hooks, content = {"response": _check_redirect}, bytearray()
    with requests.get(url, timeout=TIMEOUT, stream=True, headers=headers, hooks=hooks) as response:
        response.raise_for_status()
        # read1 returns what there is: a byte now and then is no silence, and would have no end.
        while len(content) <= max_bytes and (piece := response.raw.read1(min(_PIECE, max_bytes + 1 - len(content)))):
            content += piece
            if time.monotonic() >= give_up_at:
                raise ConnectionError(f"it took more than {TOTAL_TIMEOUT:g} seconds")
    return bytes(content)


def _describe(error: Exception) -> tuple[str, bool]:
    """Say in a few words, not in those of requests, what went wrong, and whether it may pass."""
    import requests
    from urllib3.exceptions import ProtocolError, ReadTimeoutError

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}", error.response.status_code in _BUSY
    if isinstance(error, requests.exceptions.InvalidSchema):
        return str(error), False
    cause = error.args[0] if isinstance(error, requests.RequestException) and error.args else error
    if isinstance(cause, ProtocolError | ReadTimeoutError):
        return "the connection was lost" if isinstance(cause, ProtocolError) else "no answer", True
    return type(error).__name__, False


def _check_redirect(response: requests.Response, **_: Any) -> None:
    """Refuse a redirect from https: a hook that requests calls before it reads the body, however long, and follows."""
    import requests

    if not response.is_redirect:
        return
    response.raw.close()
    response.raw = io.BytesIO()
    target = urljoin(response.url, response.headers["Location"])
    if response.url.startswith("https:") and not target.startswith("https:"):
        raise requests.exceptions.InvalidSchema("redirected from https to an address without encryption")

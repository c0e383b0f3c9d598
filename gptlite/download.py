"""Downloads, checked by sha256: a file appears under its name complete and correct, or not at all.

Until then it is a hidden file beside that name, `.<name>.part`. A download that was cut off continues from there, also
in a later process. Proxies are those of the environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin

from gptlite.errors import ConfigError, StorageError
from gptlite.formatting import Say, say_nothing, size
from gptlite.storage import files, locks

if TYPE_CHECKING:
    import requests

T = TypeVar("T")

OFFLINE = "GPTLITE_OFFLINE"  # in the environment
TIMEOUT = 30.0  # seconds without a byte
TOTAL_TIMEOUT = 1800.0  # seconds; 4 MB over a modem take ten minutes
PAUSES = (1.0, 2.0, 4.0)  # seconds before each new try, after a failure that may pass
LINE_INTERVAL = 5.0  # seconds
_PIECE = 1 << 14  # bytes; of a piece that is cut off nothing is kept
_BUSY = (408, 429, 500, 502, 503, 504)  # HTTP statuses that may pass


class _WrongContentError(Exception):
    """The bytes that arrived cannot be the file."""


@dataclass(frozen=True)
class _Download:
    """A file to download. give_up_at: on the monotonic clock."""

    path: Path
    sha256: str
    max_bytes: int
    give_up_at: float
    say: Say

    @property
    def partial(self) -> Path:
        """The file of what has arrived. Its name is hidden, so that it is no text of a folder or a glob."""
        return self.path.with_name(f".{self.path.name}.part")

    def arrived(self) -> int:
        """The size of the partial file in bytes."""
        with files.storage_errors(self.partial, "read"):
            return self.partial.stat().st_size if self.partial.exists() else 0

    def discard(self) -> None:
        """Remove the partial file, if there is one."""
        with files.storage_errors(self.partial, "remove"), contextlib.suppress(FileNotFoundError):
            files.syscall(os.unlink, self.partial)

    def in_time(self, call: Callable[[], T]) -> T:
        """`call()`, or TimeoutError. It runs in a thread, because a byte now and then is no silence and has no end."""
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(call())
            except BaseException as error:
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return result.result(max(0.0, self.give_up_at - time.monotonic()))


def download(
    urls: Sequence[str], path: Path, sha256: str, *, max_bytes: int, where: str, say: Say = say_nothing
) -> None:
    """Save the file that is at each of `urls`, tried in this order, as `path`. A wrong file of that name is replaced.

    StorageError when that fails, another file arrives or GPTLITE_OFFLINE is set; `where` goes into it. `report` gets
    the progress. Stops reading after `max_bytes`, so that an endless answer ends. An https address stays https when it
    is redirected. Another process that downloads the same file is waited for.
    """
    _check_online(urls[0], path, where)
    wanted = _Download(path, sha256, max_bytes, time.monotonic() + TOTAL_TIMEOUT, say)
    with _alone(path, say):
        if path.is_file() and files.file_sha256(path) == sha256:
            return  # another process has downloaded it meanwhile
        failures = []
        for url in urls:
            if (failure := _try(url, wanted)) is None:
                return
            failures.append(failure)
    what, advice = "; ".join(what for what, _ in failures), failures[-1][1]
    raise StorageError(f"{what}. {advice}, or put the file at {path} yourself.", where)


def _check_online(url: str, path: Path, where: str) -> None:
    value = os.environ.get(OFFLINE, "")
    if value not in ("", "0", "1"):
        raise ConfigError(
            f"the environment variable is {value[:40]!r}. Set it to 1 to forbid downloads, or unset it.", OFFLINE
        )
    if value == "1":
        raise StorageError(f"downloads are forbidden (--offline, {OFFLINE}=1). Put the file {url} at {path}.", where)


@contextlib.contextmanager
def _alone(path: Path, say: Say) -> Iterator[None]:
    """Hold the download lock; remove it, and folders left empty."""
    new = [folder for folder in path.parents if not folder.exists()]
    lock = path.with_name(f".{path.name}.lock")
    try:
        with locks.wait_for_lock(lock, "a download", say):
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    files.syscall(os.unlink, lock)
    finally:
        with contextlib.suppress(OSError):  # there is something in it
            for folder in new:
                files.syscall(os.rmdir, folder)


def _try(url: str, wanted: _Download) -> tuple[str, str] | None:
    """Download from one address. If that fails, returns what happened and what to do.

    What may pass is tried again after a pause. What is not the file is removed; if it was continued, the whole file is
    asked for, since either part may have been wrong.
    """
    import requests
    import urllib3

    pauses = iter(PAUSES)
    while True:
        start = wanted.arrived()
        try:
            _receive(url, start, wanted)
            _put_in_place(wanted)
            return None
        except TimeoutError:
            return f"downloading {url} failed (it took more than {TOTAL_TIMEOUT:g} seconds)", "Go online"
        except _WrongContentError:
            wanted.discard()
            if not start:
                return f"{url} sent another file than the one expected (sha256 {wanted.sha256[:12]}...)", "Try again"
            wanted.say("the parts that arrived do not make the file; beginning again")
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            reason, pause = _describe(error), next(pauses, None)
            if pause is None or not _may_pass(error):
                return f"downloading {url} failed ({reason})", "Go online"
            wanted.say(f"{reason}; trying again")
            time.sleep(min(pause, max(0.0, wanted.give_up_at - time.monotonic())))


def _describe(error: Exception) -> str:
    """Say what went wrong, in a few words: some messages of requests run over a hundred, about pools and retries."""
    import requests
    import urllib3

    cause = error.args[0] if error.args else None
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code}"
    if isinstance(error, requests.exceptions.InvalidSchema):
        return str(error)
    if isinstance(cause, urllib3.exceptions.ProtocolError):
        return "the connection was lost"
    return "ReadTimeout" if isinstance(cause, urllib3.exceptions.ReadTimeoutError) else type(error).__name__


def _may_pass(error: Exception) -> bool:
    """Whether another try may succeed: the server is busy, or there was a connection and it was lost."""
    import requests
    import urllib3

    if isinstance(error, requests.RequestException) and error.response is not None:
        return error.response.status_code in _BUSY
    lost = (urllib3.exceptions.ProtocolError, urllib3.exceptions.ReadTimeoutError)
    return bool(error.args) and isinstance(error.args[0], lost)


def _receive(url: str, start: int, wanted: _Download) -> None:
    """Ask for what follows the first `start` bytes and append it to the partial file, where it stays after an error."""
    if start >= wanted.max_bytes:
        return
    wanted.say(f"downloading {url}" + f", of which {size(start)} are here" * bool(start))
    response = wanted.in_time(lambda: _ask(url, start))
    try:
        if start and response.status_code == 416:
            return  # nothing follows: it is complete, or it is not the file
        response.raise_for_status()
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise _WrongContentError
        if response.status_code != 206:
            start = 0  # the server sends all of it, whatever was asked for
        elif not re.match(rf"bytes {start}-", response.headers.get("Content-Range", "")):
            raise _WrongContentError
        _append(response, start, wanted)
    finally:
        # In a thread, because closing waits for a read that has not ended.
        threading.Thread(target=response.close, daemon=True).start()


def _ask(url: str, start: int) -> requests.Response:
    """The answer to a request for all bytes from `start` on. Its body is not read yet."""
    import requests

    headers = {"Accept-Encoding": "identity"}  # a compressed answer may be a thousand times larger than what is sent
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return requests.get(url, timeout=TIMEOUT, stream=True, headers=headers, hooks={"response": _check_redirect})
    except requests.RequestException:
        raise
    except ValueError as error:
        raise requests.exceptions.InvalidURL("redirected to what is no address") from error


def _append(response: requests.Response, start: int, wanted: _Download) -> None:
    """Write the body of an answer after the first `start` bytes of the partial file."""
    length = response.headers.get("Content-Length", "")
    of_all = f" of {size(start + int(length))}" if re.fullmatch("[0-9]{1,15}", length) else ""
    next_line = time.monotonic() + LINE_INTERVAL
    pieces, arrived = response.iter_content(_PIECE), start
    with files.OutFile.append(wanted.partial) as file:
        file.truncate(start)
        while piece := wanted.in_time(lambda: next(pieces, b"")):
            arrived += len(piece)
            if arrived > wanted.max_bytes:
                raise _WrongContentError
            file.write(piece)
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + LINE_INTERVAL
                wanted.say(f"downloaded {size(arrived)}{of_all}")


def _put_in_place(wanted: _Download) -> None:
    """Give the partial file its name, durably. _WrongContentError if it is not the file."""
    if files.file_sha256(wanted.partial) != wanted.sha256:
        raise _WrongContentError
    with files.OutFile.append(wanted.partial) as file:
        file.sync()
    with files.storage_errors(wanted.path, "replace"):
        files.syscall(os.replace, wanted.partial, wanted.path)
    files.sync_dir(wanted.path.parent)


def _check_redirect(response: requests.Response, **_: Any) -> None:
    """A hook that requests calls before it follows a redirect, whose body it would read whole, however long."""
    import requests

    if not response.is_redirect:
        return
    response.raw.close()
    response.raw = io.BytesIO()
    target = urljoin(response.url, response.headers["Location"])
    if response.url.startswith("https:") and not target.startswith("https:"):
        raise requests.exceptions.InvalidSchema("redirected from https to an address without encryption")

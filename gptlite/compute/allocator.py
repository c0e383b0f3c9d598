"""Make glibc keep freed memory, so that large buffers are not returned to the system after every use.

glibc gives blocks above its mmap threshold back at once, so each forward pass asks for fresh pages, and the system
zeroes them one by one: a third of a step of a small model with a large vocabulary. Its own threshold stops growing at
32 MiB; set from inside the process there is no such limit. The price is that memory, once used, is kept.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST = 2**31 - 1


def keep_freed_memory() -> None:
    """Ask glibc not to return memory; elsewhere nothing. Changes speed and peak memory, never a result."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST)

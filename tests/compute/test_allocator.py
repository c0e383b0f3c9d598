from __future__ import annotations

from types import SimpleNamespace

import pytest

from gptlite.compute import allocator


def test_glibc_is_asked_to_keep_what_it_would_map_anew_or_trim(monkeypatch):
    asked = []
    library = SimpleNamespace(mallopt=lambda *setting: asked.append(setting))
    monkeypatch.setattr(allocator.sys, "platform", "linux")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: library)
    allocator.keep_pages()
    assert asked == [(-3, 2**31 - 1), (-1, 2**31 - 1)]  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in malloc.h


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_system_without_mallopt_is_left_alone(monkeypatch, platform):
    monkeypatch.setattr(allocator.sys, "platform", platform)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: SimpleNamespace())
    allocator.keep_pages()
    assert allocator.ctypes.CDLL(None) == SimpleNamespace()

from __future__ import annotations

from types import SimpleNamespace

from gptlite.compute import allocator


def test_glibc_is_asked_to_keep_what_it_would_map_anew_or_trim(monkeypatch):
    asked = []
    library = SimpleNamespace(mallopt=lambda *setting: asked.append(setting))
    monkeypatch.setattr(allocator.sys, "platform", "linux")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: library)
    allocator.keep_freed_memory()
    assert asked == [(-3, 2**31 - 1), (-1, 2**31 - 1)]  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD in malloc.h


def test_other_systems_are_not_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=lambda *setting: asked.append(1)))
    allocator.keep_freed_memory()
    assert asked == []


def test_a_c_library_without_mallopt_is_left_alone(monkeypatch):
    looked_for = []

    class Library:
        def __getattr__(self, name):
            looked_for.append(name)
            raise AttributeError(name)

    monkeypatch.setattr(allocator.sys, "platform", "linux")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: Library())
    allocator.keep_freed_memory()
    assert looked_for == ["mallopt"]

"""Several processes compare what each of them says of itself. How they meet: tests/training/test_distributed.py."""

from __future__ import annotations

import json

import pytest

from gptlite.compute import distributed
from gptlite.errors import ConfigError, StorageError


def test_every_difference_is_named_with_both_sides(monkeypatch):
    facts = [{"torch": "2.13.0", "text": "ab"}, {"torch": "2.13.0", "text": "ab"}, {"torch": "2.12.1", "run": "new"}]
    monkeypatch.setattr(distributed, "gather", lambda *_: [json.dumps(each) for each in facts])
    with pytest.raises(ConfigError) as error:
        distributed.check_same(facts[0])
    assert [problem.sentence.partition(". Start")[0] for problem in error.value.problems] == [
        "torch is 2.13.0 in process 0 and 2.12.1 in process 2",
        "text is ab in process 0 and missing in process 2",
        "run is missing in process 0 and new in process 2",
    ]


def test_whoever_never_comes_is_named(monkeypatch):
    monkeypatch.setattr(distributed, "SILENCE", 0.0)
    monkeypatch.setattr(distributed, "PATIENCE", 0.05)
    said: list[str] = []
    with pytest.raises(StorageError, match=r"process 1 of 2 \(RANK\) did not come this far within"):
        distributed.wait_for(lambda: False, "process 1 of 2 (RANK)", said.append)
    assert said == ["waiting for process 1 of 2 (RANK)"]


def test_a_lost_process_is_one_line_and_a_bug_stays_a_bug():
    lost = "[/pytorch/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:1705. It crashed"
    sentence = r"has ended, or cannot be reached \(Connection closed by peer \[127.0.0.1\]:1705\)"
    with pytest.raises(StorageError, match=sentence), distributed.peer_errors():
        raise RuntimeError(lost)
    with pytest.raises(RuntimeError, match="sizes of tensors"), distributed.peer_errors():
        raise RuntimeError("the sizes of tensors must match")

"""What is refused before anything is trained."""

from __future__ import annotations

import pytest

from gptlite.errors import DataError
from gptlite.training import launch


def test_prepared_text_of_which_a_bit_was_flipped_is_refused_to_new_and_resumed_runs(tiny, tmp_path):
    tiny = tiny.with_values({"data.dir": str(tmp_path / "prepared")})
    outcome = launch.start(tiny.with_values({"train.max_steps": 2}), root=tmp_path, base="a")
    ids = outcome.prepared.path / "train-00000.bin"
    good = ids.read_bytes()
    ids.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(DataError, match=r"train-00000\.bin: .* its sha256 is "):
        launch.start(tiny, root=tmp_path, base="b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(DataError, match=r"train-00000\.bin: .* its sha256 is "):
        launch.resume(outcome.run)

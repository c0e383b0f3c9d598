"""Which checkpoint is meant: decided by the folders that are whole, not by what points at them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.errors import RunError
from gptlite.runs.checkpoint import Checkpoint, Damaged, write_pointer
from gptlite.runs.find import best, choose_checkpoint, config_of, find_checkpoint, latest

Save = Callable[..., Checkpoint]


def flip_last_bit(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_nothing_saved_is_none_without_a_word(folder: Path) -> None:
    assert latest(folder, pytest.fail) is None
    assert best(folder, pytest.fail) is None


def test_the_highest_step_is_the_latest_whatever_clocks_and_pointers_say(save: Save, folder: Path) -> None:
    for step in (30, 9, 100):
        os.utime(save(step).path, (1e9 - step, 1e9 - step))
    write_pointer(folder, "latest", 30)  # killed between the save and the pointer
    found = latest(folder, pytest.fail)
    assert found is not None
    assert found.step == 100


def test_a_flipped_bit_falls_back_with_one_line_that_names_the_file(save: Save, folder: Path) -> None:
    for step in (1, 2, 3):
        save(step)
    flip_last_bit(folder / "step-00000003" / "model.safetensors")
    (folder / "step-00000002" / "MANIFEST.json").unlink()
    warnings: list[str] = []
    found = latest(folder, warnings.append)
    assert found is not None
    assert found.step == 1
    assert len(warnings) == 1
    assert "step-00000003/model.safetensors: sha256 = " in warnings[0]
    assert warnings[0].endswith("its content changed (and 1 more damaged); using step 1 instead")


def test_when_every_checkpoint_is_damaged_there_is_an_error_and_no_fresh_start(save: Save, folder: Path) -> None:
    flip_last_bit(save(1, score=1.0).path / "state.json")
    for choose in (latest, best):
        with pytest.raises(RunError, match=r"state\.json: sha256 = .*; no valid checkpoint is left"):
            choose(folder, pytest.fail)


def test_a_latest_that_is_gone_altogether_is_noticed_by_its_pointer(save: Save, folder: Path) -> None:
    save(1)
    write_pointer(folder, "latest", 2)
    warnings: list[str] = []
    assert latest(folder, warnings.append) is not None
    assert warnings == [f"{folder}/latest.json: step = 2: its checkpoint is gone; using step 1 instead"]


def test_best_is_the_lowest_score_and_the_earlier_of_equals_whatever_the_pointer_says(save: Save, folder: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.5), (4, None)]:
        save(step, score=score)
    write_pointer(folder, "best", 1)  # killed between the save and the pointer
    found = best(folder, pytest.fail)
    assert found is not None
    assert found.step == 2


def test_a_damaged_best_falls_back_to_the_next_best(save: Save, folder: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.7)]:
        save(step, score=score)
    flip_last_bit(folder / "step-00000002" / "model.safetensors")
    warnings: list[str] = []
    found = best(folder, warnings.append)
    assert found is not None
    assert found.step == 3
    assert len(warnings) == 1
    assert warnings[0].endswith("using step 3 instead")


def test_a_lost_best_is_noticed_by_its_pointer(save: Save, folder: Path) -> None:
    save(1, score=2.0)
    write_pointer(folder, "best", 2, {"bits_per_byte": 1.5})
    warnings: list[str] = []
    assert best(folder, warnings.append) is not None
    assert warnings == [f"{folder}/best.json: step = 2: its checkpoint is gone; using step 1 instead"]


def test_without_scores_the_pointer_decides_and_without_it_the_newest(save: Save, folder: Path) -> None:
    save(1), save(2)
    warnings: list[str] = []
    found = best(folder, warnings.append)
    assert found is not None
    assert found.step == 2
    assert warnings == [f"{folder}: best = unknown: no checkpoint was evaluated; using the newest, step 2"]
    write_pointer(folder, "best", 1)
    found = best(folder, pytest.fail)
    assert found is not None
    assert found.step == 1


def test_a_pointer_that_is_damaged_is_only_a_lost_hint(save: Save, folder: Path) -> None:
    save(1, score=1.0)
    for data in (b"", b"[]", b'{"format_version": 1, "step": "x"}', b"\xff"):
        (folder / "latest.json").write_bytes(data)
        (folder / "best.json").write_bytes(data)
        assert latest(folder, pytest.fail) is not None
        assert best(folder, pytest.fail) is not None


def test_a_step_is_found_by_its_number_and_a_wrong_one_names_those_there_are(save: Save, folder: Path) -> None:
    save(1), save(20)
    assert find_checkpoint(folder, "1", pytest.fail).step == 1
    assert find_checkpoint(folder, "latest", pytest.fail).step == 20
    for which in ("2", "newest", "٢", ""):
        with pytest.raises(RunError, match=rf"checkpoint = {which}: best, latest or a step that was saved: 1, 20"):
            find_checkpoint(folder, which, pytest.fail)


def test_a_damaged_step_that_was_asked_for_is_refused_and_not_replaced_by_another(save: Save, folder: Path) -> None:
    save(1), save(2)
    flip_last_bit(folder / "step-00000002" / "state.json")
    with pytest.raises(Damaged, match=r"step-00000002/state\.json"):
        find_checkpoint(folder, "2", pytest.fail)


def test_a_run_without_checkpoints_says_that_nothing_is_saved(folder: Path) -> None:
    with pytest.raises(RunError, match=r"checkpoint = best: nothing is saved yet"):
        find_checkpoint(folder, "best", pytest.fail)


def test_a_checkpoint_is_chosen_by_run_or_by_its_own_folder(save: Save, folder: Path, tmp_path: Path) -> None:
    own = save(1).path
    (folder.parent / "config.yaml").touch()
    assert choose_checkpoint(tmp_path, "small", "latest", pytest.fail).step == 1
    assert choose_checkpoint(tmp_path / "no", str(own), None, pytest.fail).path == own
    with pytest.raises(RunError, match=r"run = other: a run's name or folder; there are small"):
        choose_checkpoint(tmp_path, "other", "best", pytest.fail)


def test_of_a_run_the_best_is_taken_where_none_is_named(save: Save, folder: Path, tmp_path: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.7)]:
        save(step, score=score)
    (folder.parent / "config.yaml").touch()
    assert choose_checkpoint(tmp_path, "small", None, pytest.fail).step == 2


def test_a_model_is_used_as_suits_the_machine_at_hand_but_in_fp32_where_it_was_trained_so(
    save: Save, folder: Path
) -> None:
    found = save(1)
    trained = {"run.device": "cuda", "run.attention": "plain", "run.threads": 7, "run.seed": 5}
    for precision, expected in (("bf16", "auto"), ("fp32", "fp32")):
        cfg = RunConfig().with_values({**trained, "run.precision": precision})
        (folder.parent / "config.yaml").write_text(dump_config(cfg), encoding="utf-8")
        run = config_of(found, []).run
        assert (run.device, run.attention, run.threads, run.precision) == ("auto", "auto", "auto", expected)
        assert run.seed == 5
        asked = config_of(found, ["run.threads=3", "run.precision=bf16"]).run
        assert (asked.threads, asked.precision) == (3, "bf16")

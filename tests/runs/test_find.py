"""Finding checkpoints: valid folders decide, not pointers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.errors import RunError
from gptlite.runs.checkpoint import Checkpoint, Damaged, write_pointer
from gptlite.runs.find import choose_checkpoint, find_best, find_checkpoint, find_latest, load_checkpoint_config
from gptlite.runs.run import Run

Save = Callable[..., Checkpoint]


def flip_last_bit(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_without_checkpoints_the_result_is_none_without_a_warning(folder: Path) -> None:
    assert find_latest(folder, pytest.fail) is None
    assert find_best(folder, pytest.fail) is None


def test_the_highest_step_is_the_latest_whatever_clocks_and_pointers_say(save: Save, folder: Path) -> None:
    for step in (30, 9, 100):
        os.utime(save(step).path, (1e9 - step, 1e9 - step))
    write_pointer(folder, "latest", 30)  # killed between the save and the pointer
    found = find_latest(folder, pytest.fail)
    assert found is not None
    assert found.step == 100


def test_a_flipped_bit_falls_back_with_one_warning_that_names_the_file(save: Save, folder: Path) -> None:
    for step in (1, 2, 3):
        save(step)
    flip_last_bit(folder / "step-00000003" / "model.safetensors")
    (folder / "step-00000002" / "MANIFEST.json").unlink()
    warnings: list[str] = []
    found = find_latest(folder, warnings.append)
    assert found is not None
    assert found.step == 1
    assert len(warnings) == 1
    damage = f"{folder}/step-00000003/model.safetensors: the content of this file changed: its sha256 is "
    assert warnings[0].startswith(f"{folder}: using step 1, since 2 checkpoints cannot be read: {damage}")


def test_when_every_checkpoint_is_damaged_there_is_an_error_and_no_fresh_start(save: Save, folder: Path) -> None:
    flip_last_bit(save(1, score=1.0).path / "state.json")
    for choose in (find_latest, find_best):
        with pytest.raises(
            RunError, match=r"no checkpoint can be read\. .*state\.json: the content of this file changed"
        ):
            choose(folder, pytest.fail)


def test_a_missing_latest_is_noticed_by_its_pointer(save: Save, folder: Path) -> None:
    save(1)
    write_pointer(folder, "latest", 2)
    warnings: list[str] = []
    assert find_latest(folder, warnings.append) is not None
    assert warnings == [f"{folder}: using step 1, since the checkpoint of step 2 is missing."]


def test_best_is_the_lowest_score_and_the_earlier_of_equals_whatever_the_pointer_says(save: Save, folder: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.5), (4, None)]:
        save(step, score=score)
    write_pointer(folder, "best", 1)  # killed between the save and the pointer
    found = find_best(folder, pytest.fail)
    assert found is not None
    assert found.step == 2


def test_a_damaged_best_falls_back_to_the_next_best(save: Save, folder: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.7)]:
        save(step, score=score)
    flip_last_bit(folder / "step-00000002" / "model.safetensors")
    warnings: list[str] = []
    found = find_best(folder, warnings.append)
    assert found is not None
    assert found.step == 3
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{folder}: using step 3, since 1 checkpoint cannot be read: ")


def test_a_missing_best_is_noticed_by_its_pointer(save: Save, folder: Path) -> None:
    save(1, score=2.0)
    write_pointer(folder, "best", 2, {"bits_per_byte": 1.5})
    warnings: list[str] = []
    assert find_best(folder, warnings.append) is not None
    assert warnings == [f"{folder}: using step 1, since the checkpoint of step 2 is missing."]


def test_without_scores_the_pointer_decides_and_without_it_the_newest(save: Save, folder: Path) -> None:
    save(1), save(2)
    warnings: list[str] = []
    found = find_best(folder, warnings.append)
    assert found is not None
    assert found.step == 2
    assert warnings == [f"{folder}: using the newest checkpoint, step 2, since none was evaluated."]
    write_pointer(folder, "best", 1)
    found = find_best(folder, pytest.fail)
    assert found is not None
    assert found.step == 1


def test_a_damaged_pointer_is_ignored(save: Save, folder: Path) -> None:
    save(1, score=1.0)
    for data in (b"", b"[]", b'{"format_version": 1, "step": "x"}', b"\xff"):
        (folder / "latest.json").write_bytes(data)
        (folder / "best.json").write_bytes(data)
        assert find_latest(folder, pytest.fail) is not None
        assert find_best(folder, pytest.fail) is not None


def test_a_step_is_found_by_its_number_and_a_wrong_one_is_an_error_with_the_saved_ones(
    save: Save, folder: Path
) -> None:
    save(1), save(20)
    assert find_checkpoint(folder, "1", pytest.fail).step == 1
    assert find_checkpoint(folder, "latest", pytest.fail).step == 20
    for which in ("2", "newest", "٢", ""):
        with pytest.raises(
            RunError, match=rf"there is no checkpoint {which}\. Give best, latest or a saved step: 1, 20\."
        ):
            find_checkpoint(folder, which, pytest.fail)


def test_a_damaged_step_is_an_error_and_not_replaced_by_another(save: Save, folder: Path) -> None:
    save(1), save(2)
    flip_last_bit(folder / "step-00000002" / "state.json")
    with pytest.raises(Damaged, match=r"step-00000002/state\.json"):
        find_checkpoint(folder, "2", pytest.fail)


def test_a_run_without_checkpoints_says_that_nothing_is_saved(folder: Path) -> None:
    with pytest.raises(RunError, match=r"there is no checkpoint yet"):
        find_checkpoint(folder, "best", pytest.fail)


def test_a_checkpoint_is_chosen_by_run_or_by_its_own_folder(save: Save, folder: Path, tmp_path: Path) -> None:
    own = save(1).path
    Run(folder.parent).write_setup({}, "run: {}\n")
    assert choose_checkpoint(tmp_path, "small", "latest", pytest.fail).step == 1
    assert choose_checkpoint(tmp_path / "no", str(own), None, pytest.fail).path == own
    with pytest.raises(RunError, match=r"run other: there is no run of this name in .*The newest runs are small\."):
        choose_checkpoint(tmp_path, "other", "best", pytest.fail)


def test_of_a_run_the_best_is_taken_where_none_is_named(save: Save, folder: Path, tmp_path: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.7)]:
        save(step, score=score)
    Run(folder.parent).write_setup({}, "run: {}\n")
    assert choose_checkpoint(tmp_path, "small", None, pytest.fail).step == 2


@pytest.mark.parametrize("find", [find_latest, find_best])
def test_a_checkpoint_that_is_pruned_while_it_is_chosen_is_chosen_again(
    save: Save, folder: Path, find: Callable[..., Checkpoint | None]
) -> None:
    save(1, score=2.0)
    tried: list[int] = []

    def use(checkpoint: Checkpoint) -> Checkpoint:
        tried.append(checkpoint.step)
        if len(tried) == 1:  # training saves a better one, and removes this one
            save(2, score=1.0)
            shutil.rmtree(checkpoint.path)
        return checkpoint.verified()

    found = find(folder, pytest.fail, use)
    assert found is not None
    assert (found.step, tried) == (2, [1, 2])


def test_what_is_read_is_what_was_verified(save: Save) -> None:
    found = save(1)
    flip_last_bit(found.path / "model.safetensors")  # after it was opened
    with pytest.raises(Damaged, match=r"model\.safetensors: the content of this file changed"):
        found.read_model()
    assert found.read_optimizer().keys() == {"wte.exp_avg", "wte.step"}


def test_the_optimizer_is_not_needed_to_use_a_model(save: Save, folder: Path) -> None:
    flip_last_bit(save(1).path / "optimizer.safetensors")
    assert find_checkpoint(folder, "latest", pytest.fail).step == 1
    assert find_checkpoint(folder, "1", pytest.fail).step == 1


def test_a_config_that_was_edited_is_a_warning_where_only_the_model_is_used(save: Save, folder: Path) -> None:
    save(1)
    Run(folder.parent).write_setup({}, "run: {}\n")
    (folder.parent / "config.yaml").write_text("run: {}\nsample: {temperature: 2.0}\n")
    lines: list[str] = []
    assert choose_checkpoint(folder.parent.parent, "small", "latest", lines.append).step == 1
    (line,) = lines
    assert line.startswith(f"warning: {folder.parent}/config.yaml: this file changed after it was written")


def test_device_and_threads_are_chosen_again_and_a_precision_of_fp32_is_kept(save: Save, folder: Path) -> None:
    found = save(1)
    trained = {"run.device": "cuda", "run.attention": "plain", "run.threads": 7, "run.seed": 5}
    for precision, expected in (("bf16", "auto"), ("fp32", "fp32")):
        cfg = RunConfig().with_values({**trained, "run.precision": precision})
        (folder.parent / "config.yaml").write_text(dump_config(cfg), encoding="utf-8")
        run = load_checkpoint_config(found, []).run
        assert (run.device, run.attention, run.threads, run.precision) == ("auto", "auto", "auto", expected)
        assert run.seed == 5
        asked = load_checkpoint_config(found, ["run.threads=3", "run.precision=bf16"]).run
        assert (asked.threads, asked.precision) == (3, "bf16")

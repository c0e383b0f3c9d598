"""Finding checkpoints: valid folders decide, not pointers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gptlite.config.loading import dump_config
from gptlite.config.schema import RunConfig
from gptlite.errors import Damaged, RunError
from gptlite.runs.checkpoint import Checkpoint, write_pointer
from gptlite.runs.find import choose_checkpoint, find_checkpoint, find_valid, load_checkpoint_config
from gptlite.runs.run import Run

Save = Callable[..., Checkpoint]


def flip_last_bit(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def choice(folder: Path, which: str) -> tuple[int | None, list[str]]:
    """The step of the checkpoint that is chosen, and the lines about it."""
    lines: list[str] = []
    found = find_valid(folder, which, lines.append)
    return found and found.step, lines


@pytest.mark.parametrize("which", ["latest", "best"])
def test_without_checkpoints_the_result_is_none_without_a_line(folder: Path, which: str) -> None:
    assert choice(folder, which) == (None, [])


def test_the_highest_step_is_the_latest_whatever_clocks_and_pointers_say(save: Save, folder: Path) -> None:
    for step in (30, 9, 100):
        os.utime(save(step).path, (1e9 - step, 1e9 - step))
    write_pointer(folder, "latest", 30)  # killed between the save and the pointer
    assert choice(folder, "latest") == (100, [])


def test_a_flipped_bit_falls_back_with_one_line_that_names_the_file(save: Save, folder: Path) -> None:
    for step in (1, 2, 3):
        save(step)
    flip_last_bit(folder / "step-00000003" / "model.safetensors")
    (folder / "step-00000002" / "MANIFEST.json").unlink()
    step, (line,) = choice(folder, "latest")
    assert step == 1
    damage = f"{folder}/step-00000003/model.safetensors: this file changed after it was written: its sha256 was "
    assert line.startswith(f"{folder}: using step 1, since 2 checkpoints cannot be read: {damage}")


@pytest.mark.parametrize("which", ["latest", "best"])
def test_when_every_checkpoint_is_damaged_there_is_an_error_and_no_fresh_start(
    save: Save, folder: Path, which: str
) -> None:
    flip_last_bit(save(1, score=1.0).path / "state.json")
    with pytest.raises(RunError, match=r"no checkpoint can be read\. .*state\.json: this file changed after it was"):
        choice(folder, which)


@pytest.mark.parametrize("which", ["latest", "best"])
def test_one_that_is_missing_is_noticed_by_its_pointer(save: Save, folder: Path, which: str) -> None:
    save(1, score=2.0)
    write_pointer(folder, which, 2)
    assert choice(folder, which) == (1, [f"{folder}: using step 1, since the checkpoint of step 2 is missing."])


def test_best_is_the_lowest_score_and_the_earlier_of_equals_whatever_the_pointer_says(save: Save, folder: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.5), (4, None)]:
        save(step, score=score)
    write_pointer(folder, "best", 1)  # killed between the save and the pointer
    assert choice(folder, "best") == (2, [])


@pytest.mark.parametrize("name", ["model.safetensors", "MANIFEST.json"])
def test_a_damaged_best_falls_back_to_the_next_best(save: Save, folder: Path, name: str) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.7)]:
        save(step, score=score)
    flip_last_bit(folder / "step-00000002" / name)
    step, (line,) = choice(folder, "best")
    assert step == 3
    assert line.startswith(f"{folder}: using step 3, since 1 checkpoint cannot be read: {folder}/step-00000002/{name}")


def test_without_scores_the_newest_is_the_best(save: Save, folder: Path) -> None:
    save(1), save(2)
    newest = f"{folder}: using the newest checkpoint, step 2, since none was evaluated."
    assert choice(folder, "best") == (2, [newest])


@pytest.mark.parametrize("which", ["latest", "best"])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"format_version": 1, "step": "x"}', b"\xff"])
def test_a_damaged_pointer_is_ignored(save: Save, folder: Path, which: str, content: bytes) -> None:
    save(1, score=1.0)
    (folder / f"{which}.json").write_bytes(content)
    assert choice(folder, which) == (1, [])


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
    with pytest.raises(RunError, match=r"this run has no checkpoint yet"):
        find_checkpoint(folder, "best", pytest.fail)


def test_a_checkpoint_is_chosen_by_run_or_by_its_own_folder(save: Save, folder: Path, tmp_path: Path) -> None:
    for step, score in [(1, 2.0), (2, 1.5), (3, 1.7)]:
        own = save(step, score=score).path
    Run(folder.parent).write_setup({}, "run: {}\n")
    chosen = [choose_checkpoint(tmp_path, "small", which, pytest.fail).step for which in ("latest", "1", None)]
    assert chosen == [3, 1, 2]  # the best where none is named
    assert choose_checkpoint(tmp_path / "no", str(own), None, pytest.fail).path == own
    with pytest.raises(RunError, match=r"run other: there is no run of this name in .*The newest runs are small\."):
        choose_checkpoint(tmp_path, "other", "best", pytest.fail)


@pytest.mark.parametrize("which", ["latest", "best"])
def test_a_checkpoint_that_is_pruned_while_it_is_chosen_is_chosen_again(save: Save, folder: Path, which: str) -> None:
    save(1, score=2.0)
    tried: list[int] = []

    def use(checkpoint: Checkpoint) -> Checkpoint:
        tried.append(checkpoint.step)
        if len(tried) == 1:  # training saves a better one, and removes this one
            save(2, score=1.0)
            shutil.rmtree(checkpoint.path)
        return checkpoint.verified()

    found = find_valid(folder, which, pytest.fail, use)
    assert found is not None
    assert (found.step, tried) == (2, [1, 2])


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


def test_a_lost_checkpoint_older_than_the_newest_is_nothing_to_tell(save: Save, folder: Path) -> None:
    save(2)
    write_pointer(folder, "latest", 1)
    assert choice(folder, "latest") == (2, [])

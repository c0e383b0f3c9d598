"""Start-up imports nothing that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_training_sampling_and_scoring_load_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "story.txt").write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    program = """
import sys
from gptlite.__main__ import main
tiny = "model.n_layer=1 model.n_head=1 model.n_embd=8 model.block_size=8 train.max_steps=1 train.warmup_steps=0"
sets = [word for value in f"{tiny} train.optimizer=muon tokenizer.kind=char".split() for word in ("--set", value)]
for line in (["train", "--data", "story.txt", "-c", "tiny", *sets], ["sample", "--max-new-tokens", "2"], ["eval"]):
    sys.argv = ["gptlite", *line]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
assert "torch" in sys.modules
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_loads_nothing_that_computes() -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; from gptlite.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_text_that_is_none_is_refused_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    program = "import sys; sys.modules['torch'] = None; from gptlite.__main__ import main; main()"
    arguments = ["train", "--minutes", "1", "--data", "book.pdf"]
    done = subprocess.run([sys.executable, "-c", program, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.startswith(f"error: {tmp_path / 'book.pdf'}: this is a PDF file. ")
    assert done.stderr.count("\n") == 1
    assert done.returncode == 2

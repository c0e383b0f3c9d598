"""A checkpoint without what only training needs, and with a model card: what one uploads to a hub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptlite.data.dataset.manifest import Baselines, Manifest
from gptlite.data.sources.named_datasets import find_card
from gptlite.formatting import counted
from gptlite.inference.language_model import LanguageModel
from gptlite.interop.gpt2 import read_section, read_tensors
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2
from gptlite.runs.checkpoint import Checkpoint
from gptlite.runs.find import source_name
from gptlite.storage.sealed import write_folder

CARD = "README.md"
ONLY_FOR_TRAINING = ("optimizer.safetensors", "state.json")


def write_hf_folder(path: Path, checkpoint: Checkpoint, card: str) -> None:
    """Write a new folder durably, which gptlite and transformers open. StorageError, with nothing left behind."""
    names = [name for name in checkpoint.files if name not in ONLY_FOR_TRAINING]
    fields = {"step": checkpoint.step, "score": checkpoint.score}
    write_folder(path, fields, [(CARD, card.encode()), *((name, checkpoint.read(name)) for name in names)])


def read_hf_folder(folder: Path) -> GPT:
    """Return the model that transformers makes of the folder: by GPT-2's keys of config.json alone."""
    tensors = read_tensors(folder)
    model = GPT(read_section(folder / "config.json"), len(tensors["transformer.wte.weight"]))
    from_gpt2(tensors, model)
    return model


def model_card(
    name: str, checkpoint: Checkpoint, model: LanguageModel, text: Manifest | None, begun: str | None
) -> str:
    """Return the card: text, model and score.

    text: what the model was trained on; None where it is gone. begun: `train.from` of the run.
    """
    cfg, tokenizer = model.gpt.cfg, model.tokenizer
    front = {"library_name": "transformers", "pipeline_tag": "text-generation", "tags": ["gptlite", "gpt2"]}
    heads = counted(cfg.n_head, "head")
    lines = [
        "---",
        *(f"{key}: {json.dumps(value)}" for key, value in front.items()),
        "---",
        "",
        f"# {name}",
        "",
        f"A GPT-2 of {counted(model.gpt.n_parameters(), 'parameter')}, trained with gptlite: "
        f"{counted(cfg.n_layer, 'block')} of width {cfg.n_embd} with {heads} each, a context of "
        f"{cfg.block_size} tokens, {tokenizer.vocab_size:,} ids ({tokenizer.kind}).",
        "",
        *([] if text is None else [*describe_text(text), ""]),
        *([] if begun is None else [f"- Training began with the weights of `{source_name(begun)}`."]),
        *describe_score(checkpoint, None if text is None else text.baselines),
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")',
        'prompt = tokenizer("...", return_tensors="pt")',
        "print(tokenizer.decode(model.generate(**prompt, do_sample=True)[0]))",
        "```",
    ]
    return "\n".join(lines) + "\n"


def describe_text(text: Manifest) -> list[str]:
    """Return lines about the training text: names, size, and the licence where it is known."""
    lines = []
    for source in text.sources:
        card = find_card(source.name)
        licence = "of a licence that gptlite does not know" if card is None else card.licence
        lines.append(f"- Text: `{source.name}`, {counted(source.bytes, 'byte')}, {licence}.")
    return [*lines, f"- Trained on {counted(text.train.tokens, 'token')}, validated on {text.val.tokens:,}."]


def describe_score(checkpoint: Checkpoint, baselines: Baselines | None) -> list[str]:
    """Return lines about the score of the validation text, beside what compressors make of it."""
    state: Mapping[str, Any] = checkpoint.read_json("state.json")["train"] if "state.json" in checkpoint.files else {}
    if state.get("best_step") != checkpoint.step:
        return [f"- Step {checkpoint.step}, not scored."]
    lines = [f"- Step {checkpoint.step}: {state['best_bits_per_byte']:.4f} bits per byte of the validation text."]
    if baselines is not None:
        known = {"PPMd after the training text": baselines.ppmd, "xz -9": baselines.xz, "gzip -9": baselines.gzip}
        lines.append(f"- For comparison: {', '.join(f'{name} {bits}' for name, bits in known.items() if bits)}.")
    return lines

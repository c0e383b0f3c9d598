"""`gptlite export`: a model for other programs, or as a page that writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from gptlite.cli.options import CheckpointOption, RunArgument
from gptlite.cli.terminal import Console, emit
from gptlite.errors import ConfigError, UserError, located
from gptlite.formatting import Say, counted
from gptlite.storage import files

if TYPE_CHECKING:
    from gptlite.cli.eval.inputs import SelectedModel
    from gptlite.data.dataset.prepared import Prepared
    from gptlite.inference.language_model import LanguageModel

ENDINGS = {"folder": "-hf", "gguf": ".gguf", "page": ".html"}
# The values of --type for each target, the default first; none: weights stay as they are.
TYPES: Mapping[str, tuple[str, ...]] = {"folder": (), "gguf": ("f32", "f16", "q8_0"), "page": ("f16", "q8_0")}
MOST_SCORED = 50_000  # tokens of the validation text, for what rounding costs

Target = Annotated[
    Literal["folder", "gguf", "page"],
    Option(
        help="folder: for Hugging Face, with a model card. gguf: for llama.cpp and Ollama. page: an HTML file that "
        "writes, without a network."
    ),
]
PathArgument = Annotated[
    str | None,
    Argument(metavar="PATH", help="The new file or folder. Default: the run's name with -hf, .gguf or .html."),
]
TypeOption = Annotated[
    Literal["f32", "f16", "q8_0"] | None,
    Option(
        "--type", help="How weights are stored: gguf f32 (the default), f16 or q8_0, a page f16 (the default) or q8_0."
    ),
]


def export(
    run: RunArgument = None,
    path: PathArgument = None,
    to: Target = "folder",
    type_: TypeOption = None,
    checkpoint: CheckpointOption = None,
) -> None:
    """Write a model for other programs, or as a page that writes, and check what was written."""
    from gptlite.cli.eval.inputs import find_prepared, select_models

    console = Console()
    types = TYPES[to]
    if type_ is not None and type_ not in types:
        raise ConfigError(f"--to {to} accepts {' or '.join(types) or 'no type'}.", where=f"--type {type_}")
    kind = type_ or (types[0] if types else "")
    (selected,) = select_models([run] if run else [], checkpoint, ["run.device=cpu"], None, console.say)
    target = Path(f"{selected.name}{ENDINGS[to]}" if path is None else path)
    check_ending(target, to)
    check_free(target)
    console.say(f"checkpoint: {selected.checkpoint.path}")
    # Importing torch takes a second, so the command line is checked first.
    from gptlite.inference.load import load_checkpoint
    from gptlite.interop.readback import check_is_gpt2

    model = load_checkpoint(selected.checkpoint, selected.cfg.run)
    with located(selected.label):
        check_is_gpt2(model.gpt.cfg)
        try:
            text = find_prepared([selected])[selected.label]
        except UserError as error:
            console.say(f"exported without its text, so without its name and scores: {error}")
            text = None
        if to == "folder":
            written = export_folder(target, selected, model, text, console.say)
        elif to == "gguf":
            written = export_gguf(target, selected, model, text, kind, console.say)
        else:
            written = export_page(target, selected, model, text, kind, console.say)
    emit("".join(f"{each}\n" for each in written))


def check_ending(path: Path, to: str) -> None:
    """ConfigError where the name of a file ends as that of another target, or of none."""
    by_ending = {ending: target for target, ending in ENDINGS.items()}
    if path.suffix and by_ending.get(path.suffix, "folder") != to:
        what = "a folder" if to == "folder" else f"a file that ends in {ENDINGS[to]}"
        raise ConfigError(f"--to {to} writes {what}. Change the name or --to.", where=str(path))


def check_free(path: Path) -> None:
    """ConfigError where something has this name, or where there is no folder for it."""
    if os.path.lexists(path):
        raise ConfigError("this exists. Name another one, or remove it first.", where=str(path))
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}. Make it first, or choose another.", where=str(path))


def export_folder(
    path: Path, selected: SelectedModel, model: LanguageModel, text: Prepared | None, say: Say
) -> list[Path]:
    """Write a folder for Hugging Face, and compare the model that transformers makes of it with that of the run."""
    from gptlite.interop.hf_folder import model_card, read_hf_folder, write_hf_folder
    from gptlite.interop.readback import compare

    manifest, begun = None if text is None else text.manifest, selected.cfg.train.from_
    card = model_card(selected.name, selected.checkpoint, model, manifest, begun)
    write_hf_folder(path, selected.checkpoint, card)
    say(compare(model, read_hf_folder(path)))
    return [path]


def export_gguf(
    path: Path, selected: SelectedModel, model: LanguageModel, text: Prepared | None, kind: str, say: Say
) -> list[Path]:
    """Write a GGUF file and a Modelfile, and compare the model that llama.cpp makes of it with that of the run."""
    from gptlite.interop.gguf_file import modelfile, read_gguf, write_gguf
    from gptlite.interop.readback import compare

    beside = path.with_suffix(".Modelfile")
    check_free(beside)
    with files.removed_on_error(files.temp_name(path)) as temp, files.storage_errors(path, "write"):
        write_gguf(temp, model, kind, selected.name, describe(selected, model, text))
        with files.OutFile.append(temp) as file:
            file.sync()
        files.publish(temp, path)
    files.replace(beside, modelfile(path.name, model.gpt.cfg).encode())
    say(compare(model, read_gguf(path, model.gpt.cfg, model.tokenizer.vocab_size)))
    return [path, beside]


def export_page(
    path: Path, selected: SelectedModel, model: LanguageModel, text: Prepared | None, kind: str, say: Say
) -> list[Path]:
    """Write a page, and say what rounding the weights costs."""
    from gptlite.interop.page_weights import page_data
    from gptlite.views.page import writer_page

    model.require_mask()
    data, rounded = page_data(model, kind, selected.cfg.eval.prompt)
    content = writer_page(selected.name, describe(selected, model, text), model.gpt.n_parameters(), data).encode()
    files.replace(path, content)
    if text is not None:
        from gptlite.data.dataset.tokens import TokenArray

        tokens = text.split("val")
        scored = TokenArray(tokens.read(0, min(tokens.n_tokens, MOST_SCORED)), tokens.where)
        exact, page = (each.score_tokens(scored).bits_per_byte for each in (model, replace(model, gpt=rounded)))
        of = f"bits per byte of {counted(scored.n_tokens, 'token')} of the validation text"
        say(f"rounded to {kind}: {page:.4f} {of}, and {exact:.4f} without rounding")
    return [path]


def describe(selected: SelectedModel, model: LanguageModel, text: Prepared | None) -> str:
    """Return a line about a model: its size and its text."""
    names = "" if text is None else f", trained on {', '.join(source.name for source in text.manifest.sources)}"
    return f"a GPT of {counted(model.gpt.n_parameters(), 'parameter')}{names}, step {selected.checkpoint.step}"

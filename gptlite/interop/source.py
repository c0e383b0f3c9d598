"""Where a training can begin: with the weights of a run or checkpoint, or of a GPT-2 in Hugging Face's format."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gptlite.config.rules import SHAPE_KEYS
from gptlite.config.schema import ModelSection, RunConfig
from gptlite.config.yaml import shown
from gptlite.data.dataset.tokens import TokenArray
from gptlite.errors import ConfigError, DataError, UserError, located
from gptlite.formatting import Say, counted, say_nothing
from gptlite.inference.load import read_model_info
from gptlite.interop.gpt2 import GPT2, fetch_gpt2, read_section, read_tensors
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2
from gptlite.runs.checkpoint import Checkpoint
from gptlite.runs.find import choose_checkpoint, find_run, find_text, load_checkpoint_config
from gptlite.runs.run import runs_folder
from gptlite.storage.sealed import MANIFEST
from gptlite.tokenizers.base import FOREIGN_FILE, Tokenizer, is_foreign, load
from gptlite.tokenizers.bpe import BpeTokenizer, read_foreign

KEY = "train.from"
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
TABLES = ("transformer.wte.weight", "lm_head.weight")  # with a row for each token


@dataclass(frozen=True)
class Source:
    """A model to begin with. pieces: the bytes of the ids of its tokenizer. rows: of its tables, by these bytes; b"" is
    end-of-text."""

    path: Path
    model: ModelSection
    tokenizer: Tokenizer
    pieces: Sequence[bytes]
    rows: Mapping[bytes, int]
    read: Callable[[], Mapping[str, Tensor]]  # tensors by GPT-2's names


def open_source(name: str, cfg: RunConfig, say: Say = say_nothing) -> Source:
    """Open a run, a checkpoint, a folder of Hugging Face's format, or gpt2. UserError that says what it lacks."""
    path, runs = Path(os.path.expanduser(name)), runs_folder(cfg.run.dir)
    if path.is_file():
        raise ConfigError("this is a file. Name a run, a checkpoint, a folder of Hugging Face's format, or gpt2.")
    is_hf = os.path.isfile(path / "config.json") and not os.path.lexists(path / MANIFEST)
    if not is_hf and name == GPT2 and not os.path.lexists(path) and not os.path.lexists(runs / name):
        say("taking GPT-2 from Hugging Face's cache, or from the network (0.5 GB)")
        path, is_hf = fetch_gpt2(), True
    if is_hf and not os.path.lexists(path / FOREIGN_FILE):
        raise DataError(
            f"there is no {FOREIGN_FILE} in it. AutoTokenizer.from_pretrained(IT).save_pretrained(IT) writes one.",
            str(path),
        )
    if is_hf:
        model, read = read_section(path / "config.json"), partial(read_tensors, path)
    else:
        checkpoint = choose_checkpoint(runs, str(path), None, say)
        path, read = checkpoint.path, partial(checkpoint.read_tensors, "model.safetensors")
        model = read_model_info(checkpoint)[0]
    tokenizer, rows = read_foreign(path / FOREIGN_FILE) if is_foreign(path) else (load(path), {})
    pieces = pieces_of(tokenizer)
    rows = rows or {piece: row for row, piece in enumerate(pieces) if piece} | {b"": tokenizer.eot_id}
    return Source(path, model, tokenizer, pieces, rows, read)


def with_shape(cfg: RunConfig, name: str, say: Say = say_nothing) -> RunConfig:
    """Return the config with the folder of the model `name` as `train.from`, and with the keys that follow from it.

    Its context and its init are taken where the config gives none. ConfigError where another shape is given.
    """
    with located(f"{KEY}={name}", at=f"run {name}"), located(f"{KEY}={name}"):
        source = open_source(name, cfg, say)
        given, own = cfg.model.given(), dict(source.model)
        problems = [
            f"model.{key} is {shown(given[key])}, but in {name} it is {shown(own[key])}. Leave it out."
            for key in (*SHAPE_KEYS, *["init"] * (own["position"] == "sinusoidal"))  # whose table has that size
            if given.get(key, own[key]) != own[key]
        ]
        if problems:
            raise ConfigError(problems)
    path = str(source.path.absolute())
    taken = {f"model.{key}": own[key] for key in (*SHAPE_KEYS, "block_size", "init") if key not in given}
    tokenizer = {"tokenizer.from": path} if cfg.tokenizer.from_ == name else {}
    return cfg.with_values({**taken, **tokenizer, KEY: path})


@torch.no_grad()
def take_weights(cfg: RunConfig, model: GPT, tokenizer: Tokenizer) -> str:
    """Give a fresh model the weights that `train.from` names, in place, and return a line about them.

    Tokens that the source has keep their rows; another one begins as the mean of the rows that its text has there.
    Positions beyond those of the source stay as they are. DataError where a tensor is missing or misshapen.
    """
    assert cfg.train.from_ is not None
    source = open_source(cfg.train.from_, cfg)
    with located(str(source.path)):
        tensors = dict(source.read())
        check_tensors(tensors, source, max(source.rows.values()))
        rows = [find_rows(piece, source) for piece in pieces_of(tokenizer)]
        rows[tokenizer.eot_id] = [source.rows[b""]] if b"" in source.rows else []
        fresh = dict(zip(TABLES, (model.token_embedding.weight, model.head.weight), strict=True))
        for name in tensors.keys() & set(TABLES):
            table = fresh[name].cpu().clone()
            for row, old in enumerate(rows):
                if old:
                    table[row] = tensors[name][old].mean(0) if len(old) > 1 else tensors[name][old[0]]
            tensors[name] = table
        name = "transformer.wpe.weight"
        if model.cfg.position == "learned" and name in tensors:
            known = tensors[name][: model.cfg.block_size]
            tensors[name] = torch.cat([known, model.position_embedding.weight.cpu()[len(known) :]])
        try:
            from_gpt2(tensors, model)
        except ValueError as error:
            raise DataError(f"{error}. Its tensors do not fit its config.json.") from error
    return describe_start(source, model, rows)


def pieces_of(tokenizer: Tokenizer) -> Sequence[bytes]:
    """Return the bytes of each of the vocab_size ids, also of those that no UTF-8 has; b"" where there are none."""
    pieces = tokenizer.token_bytes()
    return [*tokenizer.ranks, *pieces[len(tokenizer.ranks) :]] if isinstance(tokenizer, BpeTokenizer) else pieces


def check_tensors(tensors: Mapping[str, Tensor], source: Source, last_row: int) -> None:
    """Raise DataError for tensors that config.json does not describe, or that are no weights."""
    for name, tensor in tensors.items():
        if name.endswith((".attn.bias", ".attn.masked_bias")):  # the mask, which is none of the weights
            continue
        if tensor.dtype not in FLOATS:
            raise DataError(f"{name} is of type {tensor.dtype}. Use weights of type float32, float16 or bfloat16.")
        if not torch.isfinite(tensor).all():
            raise DataError(f"{name} has values that are not finite. Begin with another model.")
        if name in TABLES and (tensor.ndim != 2 or tensor.size(1) != source.model.n_embd or len(tensor) <= last_row):
            needed = f"({last_row + 1} or more, {source.model.n_embd})"
            raise DataError(f"{name} has shape {tuple(tensor.shape)}, and its tokenizer and config need {needed}.")
    positions = tensors.get("transformer.wpe.weight")  # in GPT-2's layout every model has some
    layers = sum(name.endswith(".attn.c_attn.weight") for name in tensors)
    stored = [layers, *([] if positions is None else positions.shape)]
    declared = [source.model.n_layer, source.model.block_size, source.model.n_embd]
    if declared != stored:
        raise DataError(
            f"config.json declares {declared} for n_layer, block_size and n_embd, and the tensors have {stored}. "
            "Restore the folder from where it came from."
        )


def read_old_text(cfg: RunConfig, tokenizer: Tokenizer, most: int, say: Say) -> TokenArray | None:
    """Return up to `most` tokens of what the source was validated on, to see what is forgotten.

    None where the source is no run or its text is gone; also where it cannot be used, which is said.
    """
    assert cfg.train.from_ is not None
    if not os.path.lexists(Path(cfg.train.from_) / MANIFEST):
        return None
    try:
        checkpoint = Checkpoint.open(Path(cfg.train.from_))
        run = find_run(checkpoint)
        prepared = None if run is None else find_text(run, load_checkpoint_config(checkpoint, []))
        if prepared is not None:
            tokens, old = prepared.split("val"), prepared.tokenizer()
            ids = tokens.read(0, min(tokens.n_tokens, most))
            if old.fingerprint != tokenizer.fingerprint:
                ids = tokenizer.encode(old.decode(ids))
            return TokenArray(ids[:most], str(prepared.path)) if len(ids) > 1 else None
    except UserError as error:
        say(f"what is forgotten of the old text is not measured: {error}")
    return None


def find_rows(piece: bytes, source: Source) -> list[int]:
    """Return the row of a token, or those of its parts; none where the source knows neither."""
    if not piece or piece in source.rows:
        return [source.rows[piece]] if piece else []
    try:
        return [source.rows[source.pieces[part]] for part in source.tokenizer.encode(piece).tolist()]
    except (UnicodeDecodeError, DataError):  # a piece of a character, or a character that the source does not know
        return []


def describe_start(source: Source, model: GPT, rows: Sequence[Sequence[int]]) -> str:
    """Say with which weights a model begins, and what became of the tokens."""
    kept, parts = (sum(len(old) == 1 for old in rows), sum(len(old) > 1 for old in rows))
    block_size, before = model.cfg.block_size, source.model.block_size
    tokens = f"{kept:,} of {counted(model.vocab_size, 'token')} as they were"
    if parts:
        tokens += f", {parts:,} as the mean of their parts"
    if kept + parts < model.vocab_size:
        tokens += f", {model.vocab_size - kept - parts:,} new"
    context = "" if block_size == before else f"; context {block_size} instead of {before}"
    return f"begins with the weights of {source.path}: {tokens}{context}"

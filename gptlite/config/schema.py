"""The config: every key with its type, range, default and description.

`train`, `eval`, `save`, `log` and `sample` are in training.py. Sections are frozen and strict: an int is accepted for a
float, nothing else is converted. `RunConfig.with_values` replaces `auto` by what was chosen; derived
numbers are properties and never stored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field

from gptlite.config.rules import (
    DEFAULT_VAL_FRACTION,
    DEFAULT_VAL_MAX_BYTES,
    Section,
    data_rules,
    model_rules,
    tokenizer_rules,
)
from gptlite.config.training import EvalSection, LogSection, SampleSection, SaveSection, TrainSection
from gptlite.config.values import (
    Auto,
    Biases,
    BiasPlace,
    Count,
    DropoutRate,
    Encoding,
    FolderPath,
    Name,
    Natural,
    OptionalSource,
    Source,
    Switch,
    TokenizerSource,
    key,
)
from gptlite.config.yaml import DEFAULT_BPE_VOCAB_SIZE

DEFAULT_BPE_PATTERN = "gpt2"
MAX_BPE_VOCAB_SIZE = 1_000_000  # its trainer reserves memory for all of it; the largest known ones have 260,000


class RunSection(Section):
    """Device, precision, threads, seed and folder of a run; nothing here but the seed changes what is learned."""

    device: Literal["auto", "cpu", "cuda", "mps"] = key(
        "auto", "device to compute on; auto prefers cuda, then for large models mps, then cpu"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = key(
        "auto",
        "number format of the forward and backward pass; auto uses bf16 where the hardware supports it; fp16, with a "
        "scaled loss, is for GPUs without bf16",
    )
    attention: Literal["auto", "plain", "batched", "fused"] = key(
        "auto", "attention kernel; plain is the textbook equation, batched and fused are faster and equivalent"
    )
    threads: Auto | Annotated[int, Field(ge=1, le=1024)] = key(
        "auto", "CPU threads per process; auto uses its cores, at most $GPTLITE_THREADS, and one for a tiny model"
    )
    compile: Switch = key(
        "auto", "use torch.compile: a slower start, then faster steps; auto does so on a GPU for a long training"
    )
    parallel: Literal["ddp", "fsdp"] = key(
        "ddp",
        "how several processes share a run: ddp holds the whole model in each, fsdp a part of it, for models that one "
        "GPU cannot train",
    )
    checkpoint_activations: bool = key(
        False,
        "keep only the input of each block and compute it again in the backward pass: less memory, a third slower",
    )
    deterministic: bool = key(False, "use deterministic operations, so that runs on a GPU also repeat bit for bit")
    seed: Natural = key(1337, "random seed of the initial weights, the order of batches and dropout")
    dir: FolderPath = key("runs", "folder in which runs are created")


class DataSection(Section):
    """The text, how it is split, and in which order it is read."""

    source: Source = key(
        "python-stdlib", "text to train on; python-stdlib is the source code of Python's standard library"
    )
    encoding: Encoding = key("utf-8", "character encoding of the text files")
    errors: Literal["strict", "replace"] = key(
        "strict", "what to do with bytes that are not valid in the encoding: refuse them, or replace them by U+FFFD"
    )
    normalize: Literal["none", "nfc"] = key("none", "Unicode normalization of the text")
    documents: Literal["files", "lines", "records"] | None = key(
        None,
        "what one document is; null means each record where all files are .jsonl, .ndjson, .json, .csv or .tsv, else "
        "each file",
    )
    field: Name = key("text", "field of a JSON record that holds the text; a dot goes into a nested record")
    column: Name = key("text", "column of a CSV or TSV file that holds the text")
    separator: Name | None = key(None, "text between the documents of a file; null means that it is one document")
    deduplicate: bool = key(False, "leave out documents that equal an earlier one")
    val_source: OptionalSource = key(None, "text used for validation, all of it; null means a part of source")
    val_fraction: Annotated[float, Field(gt=0, le=0.5)] = key(
        DEFAULT_VAL_FRACTION, "fraction of the text used for validation"
    )
    val_max_bytes: Count = key(DEFAULT_VAL_MAX_BYTES, "maximum size of the validation text in bytes")
    order: Literal["shuffle", "random"] = key(
        "shuffle", "order of training windows; shuffle visits each once per epoch, random draws with replacement"
    )
    dir: FolderPath = key("data/prepared", "folder for prepared data sets")

    rules = staticmethod(data_rules)

    @property
    def folder(self) -> Path:
        """`dir` with ~ expanded."""
        return Path(os.path.expanduser(self.dir))

    @property
    def sources(self) -> list[str]:
        """`source` as a list."""
        return _listed(self.source)

    @property
    def val_sources(self) -> list[str]:
        """`val_source` as a list; empty where validation is a part of `source`."""
        return _listed(self.val_source)


def _listed(paths: str | list[str] | None) -> list[str]:
    return [paths] if isinstance(paths, str) else paths or []


class TokenizerSection(Section):
    """The conversion of text to token ids."""

    rules = staticmethod(tokenizer_rules)
    replaces = MappingProxyType({"from": ("kind", "vocab_size", "pattern")})

    kind: Literal["char", "bpe", "gpt2", "cl100k_base", "o200k_base"] = key(
        "bpe", "char has one id per character, bpe is trained on the text, the others are pretrained"
    )
    vocab_size: Annotated[int, Field(ge=257, le=MAX_BPE_VOCAB_SIZE)] | None = key(
        None, f"vocabulary size of bpe, special token included; null means {DEFAULT_BPE_VOCAB_SIZE}"
    )
    pattern: Literal["gptlite", "gpt2"] | None = key(
        None,
        "how bpe divides text into pieces, within which it merges: as gptlite or as GPT-2 does, which other programs "
        f"know; null means {DEFAULT_BPE_PATTERN}",
    )

    from_: TokenizerSource = key(
        None, "a run, checkpoint or prepared text whose tokenizer is used; the other keys follow from it", "from"
    )

    @property
    def bpe_vocab_size(self) -> int:
        """Vocabulary size to train a BPE tokenizer to."""
        return DEFAULT_BPE_VOCAB_SIZE if self.vocab_size is None else self.vocab_size

    @property
    def bpe_pattern(self) -> str:
        """Name of the pattern of a BPE tokenizer."""
        return self.pattern or DEFAULT_BPE_PATTERN


class Dropout(NamedTuple):
    """The probability of dropout at each of its places; all 0: there is none."""

    embedding: float  # on the sum of token and position embedding
    attention: float  # on the attention weights
    residual: float  # on what attention and feed-forward add to the residual stream


class ModelSection(Section):
    """The architecture of the model."""

    rules = staticmethod(model_rules)

    n_layer: Count = key(4, "number of transformer blocks")
    n_head: Count = key(4, "attention heads per block; must divide n_embd")
    n_embd: Count = key(128, "embedding width")
    block_size: Count = key(128, "context length in tokens")
    dropout: DropoutRate = key(0.0, "dropout probability, at every place that has none of its own")
    embedding_dropout: DropoutRate | None = key(None, "dropout of the embeddings; null means dropout")
    attention_dropout: DropoutRate | None = key(None, "dropout of the attention weights; null means dropout")
    residual_dropout: DropoutRate | None = key(
        None, "dropout of the outputs of attention and feed-forward; null means dropout"
    )
    activation: Literal["relu", "gelu"] = key(
        "relu", "activation of the feed-forward layers; relu is much cheaper on a CPU"
    )
    norm: Literal["pre", "post"] = key(
        "pre", "LayerNorm before each sublayer (pre-LN) or after its residual sum (post-LN)"
    )
    position: Literal["learned", "sinusoidal", "none"] = key("learned", "kind of position embedding")
    scale_embeddings: bool = key(
        False,
        "multiply token embeddings by the square root of n_embd, beside the sinusoidal table in full size, as in the "
        "paper; without, that table has the size of fresh token embeddings",
    )
    scale_attention: bool = key(True, "divide attention scores by the square root of the head size")
    bias: Biases = key(
        False, "biases in linear layers and LayerNorms: everywhere, nowhere or in these places, never in the head"
    )
    tie_weights: bool = key(True, "share the token embedding's weights with the output layer")
    init: Literal["previous", "zero", "gpt2", "torch"] = key(
        "previous",
        "initial weights. zero: Normal(0, 0.02) but zero where a branch ends, so that a pre-LN block begins as the "
        "identity. previous: the same, but positions begin as sinusoids beside larger token embeddings, and the heads "
        "of the first two blocks look at the tokens just before. gpt2: Normal(0, 0.02 / sqrt(2 n_layer)) where a "
        "branch ends. torch: the defaults of nn.Linear and nn.Embedding",
    )

    variant: Literal["no_residual", "no_feed_forward", "no_norm", "no_mask"] | None = key(
        None,
        "a block without one of its parts, to see what the part is for; null means whole. Without the mask the model "
        "sees what it has to predict: it is scored, but cannot write",
    )

    @property
    def sees_ahead(self) -> bool:
        """True for a model that attends to the tokens that it has to predict."""
        return self.variant == "no_mask"

    @property
    def has_previous_token_heads(self) -> bool:
        """True where the first heads begin by attending to the tokens just before, which needs learned positions."""
        return self.init == "previous" and self.position == "learned"

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head

    @property
    def biases(self) -> frozenset[BiasPlace]:
        """The places that have biases."""
        if isinstance(self.bias, bool):
            return frozenset(get_args(BiasPlace) if self.bias else ())
        return frozenset(self.bias)

    @property
    def dropouts(self) -> Dropout:
        """The probability of dropout at each place."""
        own = (self.embedding_dropout, self.attention_dropout, self.residual_dropout)
        return Dropout(*(self.dropout if p is None else p for p in own))


class RunConfig(BaseModel):
    """A complete config, one attribute per section."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    run: RunSection = RunSection()
    data: DataSection = DataSection()
    tokenizer: TokenizerSection = TokenizerSection()
    model: ModelSection = ModelSection()
    train: TrainSection = TrainSection()
    eval: EvalSection = EvalSection()
    save: SaveSection = SaveSection()
    log: LogSection = LogSection()
    sample: SampleSection = SampleSection()

    def given(self) -> dict[str, Any]:
        """Return the values by "section.key" that did not come from defaults."""
        sections = self.model_dump(exclude_unset=True)
        return {f"{name}.{key}": value for name, values in sections.items() for key, value in values.items()}

    def with_values(self, values: Mapping[str, Any]) -> RunConfig:
        """Return this config with values by "section.key" replaced, validated again; the others are given as before.

        For values that the program computes: an invalid one is a bug and raises pydantic's ValidationError, an unknown
        section KeyError.

        >>> RunConfig().with_values({"train.lr": 0.01}).train.lr
        0.01
        """
        data: dict[str, Any] = {name: getattr(self, name).given() for name in RunConfig.model_fields}
        for name, value in values.items():
            section, _, key = name.partition(".")
            data[section][key] = value
        return RunConfig.model_validate(data)


SECTIONS: dict[str, type[Section]] = {name: type(section) for name, section in RunConfig()}

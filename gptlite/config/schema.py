"""Every key of a config file: type, range, default and meaning, in one place.

The sections are frozen and strict: a whole number may stand for a float, nothing else is converted. `auto` values are
replaced by what was chosen with `RunConfig.with_values`; derived numbers are properties and never written back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from gptlite.config.defaults import DEFAULT_BPE_VOCAB_SIZE
from gptlite.config.rules import Rule, Section, heads_share_the_width, size_belongs_to_bpe
from gptlite.config.sampling import SampleSection
from gptlite.config.training import EvalSection, LogSection, SaveSection, TrainSection
from gptlite.config.values import INT64_MAX, Auto, BelowOne, Count, Encoding, Natural, PathText, Source, Switch


class RunSection(Section):
    """How the run is computed and where it lies; nothing here changes the function that is learned."""

    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        default="auto", description="where to compute; auto takes cuda where there is one, then mps, then cpu"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="arithmetic of the model; auto takes bf16 where the hardware computes in it"
    )
    attention: Literal["auto", "plain", "batched", "fused"] = Field(
        default="auto", description="plain: the equation as written; batched, fused: the fast paths that equal it"
    )
    threads: Auto | Annotated[int, Field(ge=1, le=1024)] = Field(
        default="auto",
        description="CPU threads of each process; auto: its cores, at most $GPTLITE_THREADS, one for a tiny model",
    )
    compile: Switch = Field(
        default="auto", description="compile the model first: a slow start, then faster steps; auto does so on a GPU"
    )
    deterministic: bool = Field(default=False, description="only operations that repeat bit for bit, also on a GPU")
    seed: Natural = Field(default=1337, description="decides initial weights, order of batches and dropout")
    dir: PathText = Field(default="runs", description="folder in which runs are created")


class DataSection(Section):
    """The text, and how it is split and visited."""

    source: Source = Field(
        default="python-stdlib",
        description="the text: python-stdlib (Python's own library), files, a folder, a glob, a data set's name",
    )
    encoding: Encoding = Field(default="utf-8", description="encoding of the text files")
    normalize: Literal["none", "nfc"] = Field(default="none", description="Unicode normal form given to the text")
    val_fraction: Annotated[float, Field(gt=0, le=0.5)] = Field(
        default=0.1, description="share of the text kept for validation"
    )
    val_max_bytes: Count = Field(default=10_000_000, description="validation text is at most this long, in bytes")
    order: Literal["shuffle", "random"] = Field(
        default="shuffle", description="shuffle visits each window once per epoch, random draws with replacement"
    )
    dir: PathText = Field(default="data/prepared", description="folder of prepared data sets")

    @property
    def folder(self) -> Path:
        """`dir`, with ~ for the home folder."""
        return Path(self.dir).expanduser()

    @property
    def sources(self) -> list[str]:
        """`source`, one or several."""
        return [self.source] if isinstance(self.source, str) else self.source


class TokenizerSection(Section):
    """How text becomes token ids."""

    rules: ClassVar[tuple[Rule, ...]] = (Rule(("vocab_size", "kind"), size_belongs_to_bpe),)

    kind: Literal["char", "bpe", "gpt2", "cl100k_base", "o200k_base"] = Field(
        default="bpe", description="char: one id per character; bpe: trained on the text; the others are ready-made"
    )
    vocab_size: Annotated[int, Field(ge=257, le=INT64_MAX)] | None = Field(
        default=None,
        description=f"only for bpe: ids, the special token among them; null means {DEFAULT_BPE_VOCAB_SIZE}",
    )

    @property
    def bpe_vocab_size(self) -> int:
        """The size to train a BPE to: `vocab_size`, or its default where none is given."""
        return DEFAULT_BPE_VOCAB_SIZE if self.vocab_size is None else self.vocab_size


class ModelSection(Section):
    """What the model is: the keys that change its function."""

    rules: ClassVar[tuple[Rule, ...]] = (Rule(("n_embd", "n_head"), heads_share_the_width),)

    n_layer: Count = Field(default=4, description="transformer blocks")
    n_head: Count = Field(default=4, description="attention heads per block; divides n_embd")
    n_embd: Count = Field(default=128, description="width: numbers per token between the blocks")
    block_size: Count = Field(default=128, description="context: the most tokens the model looks at")
    dropout: BelowOne = Field(default=0.0, description="share of activations zeroed while training")
    activation: Literal["relu", "gelu"] = Field(
        default="relu", description="non-linearity of the feed-forward layers; relu is much the cheaper on a CPU"
    )
    norm: Literal["pre", "post"] = Field(default="pre", description="LayerNorm before each branch, or after its sum")
    position: Literal["learned", "sinusoidal", "none"] = Field(default="learned", description="position embedding")
    scale_attention: bool = Field(default=True, description="divide attention scores by the root of the head size")
    bias: bool = Field(default=False, description="biases in linear layers and LayerNorms")
    tie_weights: bool = Field(default=True, description="the output layer shares the token embedding's weights")

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.n_embd // self.n_head


class RunConfig(BaseModel):
    """A complete config: one attribute per section of the file."""

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

    def with_values(self, values: Mapping[str, Any]) -> RunConfig:
        """This config with `section.key` names set to `values`, validated again.

        For values that the program computes: a refused one is a bug and raises pydantic's ValidationError, an unknown
        section KeyError.

        >>> RunConfig().with_values({"train.lr": 0.01}).train.lr
        0.01
        """
        data = self.model_dump()
        for name, value in values.items():
            section, _, key = name.partition(".")
            data[section][key] = value
        return RunConfig.model_validate(data)

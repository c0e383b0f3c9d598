"""The models among which `gptlite train --minutes` chooses, each with its context and its batch."""

from __future__ import annotations

from dataclasses import dataclass

from gptlite.config.schema import ModelSection
from gptlite.config.yaml import Value
from gptlite.model.sizes import muon_flops, update_flops


def head_size(width: int) -> int:
    """Return the columns of an attention head."""
    return 64 if width >= 256 else 32


@dataclass(frozen=True)
class Shape:
    """A model, its context and the sequences of an update."""

    n_layer: int
    n_embd: int
    block_size: int
    batch_size: int

    @property
    def tokens(self) -> int:
        """Tokens of an update."""
        return self.block_size * self.batch_size

    @property
    def values(self) -> dict[str, Value]:
        """Return what it says by "section.key". Evaluation takes no more memory than training."""
        heads = self.n_embd // head_size(self.n_embd)
        model = {"n_layer": self.n_layer, "n_head": heads, "n_embd": self.n_embd, "block_size": self.block_size}
        batch: dict[str, Value] = {"train.batch_size": self.batch_size, "eval.batch_size": self.batch_size}
        return {**{f"model.{key}": value for key, value in model.items()}, **batch}

    @property
    def model(self) -> ModelSection:
        """The model, as far as its operations depend on it."""
        return ModelSection(n_layer=self.n_layer, n_head=1, n_embd=self.n_embd, block_size=self.block_size)

    def with_model(self, model: ModelSection) -> Shape:
        """Return another model, with about as many tokens per update."""
        return Shape(model.n_layer, model.n_embd, model.block_size, max(1, self.tokens // model.block_size))

    def update_flops(self, vocab_size: int) -> float:
        """Operations of an update with Muon, which computes the logits of so many ids."""
        return update_flops(self.model, vocab_size, self.tokens) + muon_flops(self.model)


# Operations (times 10^12), bytes of text, and the shape with the best score from there on: the last row whose
# operations and bytes are both reached (neither column is sorted). Short contexts and many different sequences per
# update learn faster at first; a context of 128 overtakes 64 after 1.4 million tokens, 256 overtakes 128 after 2.5
# million in code and later in prose, 512 overtakes 256 after 5 million in code. Measured with texts of 40 KB, 200 KB,
# 1.1 MB and 11 MB. The last row, and where a row begins, follow the trend.
SHAPES = (
    (0.0, 0, Shape(2, 64, 64, 16)),
    (1.0, 0, Shape(3, 96, 64, 16)),
    (3.0, 0, Shape(4, 128, 64, 16)),
    (4.0, 0, Shape(4, 128, 128, 16)),
    (3.0, 100_000, Shape(4, 128, 64, 16)),
    (15.0, 100_000, Shape(4, 128, 128, 16)),
    (1.0, 300_000, Shape(3, 96, 64, 32)),
    (5.0, 400_000, Shape(3, 96, 256, 8)),
    (20.0, 300_000, Shape(4, 128, 128, 16)),
    (60.0, 150_000, Shape(4, 192, 128, 16)),
    (20.0, 3_000_000, Shape(3, 128, 256, 8)),
    (100.0, 3_000_000, Shape(4, 192, 256, 16)),
    (140.0, 3_000_000, Shape(4, 192, 512, 8)),
    (200.0, 3_000_000, Shape(5, 192, 512, 8)),
    (1000.0, 300_000, Shape(6, 384, 256, 32)),
    (1000.0, 3_000_000, Shape(6, 384, 512, 16)),
    (20_000.0, 500_000_000, Shape(12, 768, 512, 32)),
)

"""The models that are timed."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Size:
    """The shape of a model and of its batches."""

    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    batch_size: int
    vocab_size: int

    def __str__(self) -> str:
        return (
            f"{self.n_layer} layers of {self.n_embd}, {self.n_head} heads, block {self.block_size}, "
            f"batch {self.batch_size}, vocabulary {self.vocab_size}"
        )

    def shape(self) -> dict[str, int]:
        """By name."""
        return asdict(self)


SIZES = {
    "small": Size(4, 4, 128, 64, 12, 65),  # nanoGPT's CPU example
    "six": Size(6, 6, 384, 256, 16, 65),  # its GPU example, a quarter of the batch
    "gpt2": Size(12, 12, 768, 256, 1, 50257),  # GPT-2 124M
    "bpe": Size(3, 3, 96, 64, 32, 4096),  # small.yaml
}
SIZES_OF_DEVICE = {
    "cpu": SIZES,
    "cuda": {
        "bpe": SIZES["bpe"],
        "baby": Size(6, 6, 384, 256, 64, 65),  # nanoGPT's GPU example
        "gpt2": Size(12, 12, 768, 1024, 16, 50257),
    },
}

# Sampling: tokens given and tokens written; both fit the block of the sizes that are sampled from.
N_PROMPT, N_NEW = 16, 200
SAMPLED = ("six", "gpt2")

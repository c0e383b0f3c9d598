"""The size of a model: its parameters by part, and the operations of an update.

C = n_embd, T = block_size, V = vocab_size. Arithmetic only, without torch.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from gptlite.config.schema import ModelSection

MAX_LOGITS = 1 << 26  # that are held at a time: 256 MiB in fp32
LARGE_VOCABULARY, SAMPLED_SHARE = 2048, 0.375  # measured with 4,096 ids


@dataclass(frozen=True)
class Parameters:
    """The number of parameters in each part of the model."""

    embeddings: int
    positions: int
    attention: int
    feed_forward: int
    norms: int
    head: int  # 0 with tied weights

    @property
    def total(self) -> int:
        """Count all parameters, as GPT.n_parameters() does."""
        return sum(astuple(self))


def count_parameters(cfg: ModelSection, vocab_size: int) -> Parameters:
    """Count the parameters of a GPT without building it."""
    C, n_layer, biases = cfg.n_embd, cfg.n_layer, cfg.biases
    norms = n_layer * (1 + has_feed_forward(cfg)) + (cfg.norm == "pre")  # of the blocks, and a last one with pre-LN
    return Parameters(
        embeddings=vocab_size * C,
        positions=cfg.block_size * C if cfg.position == "learned" else 0,
        attention=n_layer * (4 * C * C + ("qkv" in biases) * 3 * C + ("proj" in biases) * C),
        feed_forward=n_layer * has_feed_forward(cfg) * (8 * C * C + ("mlp" in biases) * 5 * C),  # C -> 4C -> C
        norms=0 if cfg.variant == "no_norm" else norms * (1 + ("norm" in biases)) * C,
        head=0 if cfg.tie_weights else vocab_size * C,
    )


def has_feed_forward(cfg: ModelSection) -> bool:
    """Return whether blocks have a feed-forward, with the norm before it."""
    return cfg.variant != "no_feed_forward"


def count_hidden(cfg: ModelSection) -> int:
    """Count the parameters in the matrices of the blocks, which Muon can train."""
    return (12 if has_feed_forward(cfg) else 4) * cfg.n_layer * cfg.n_embd**2


def largest_block_product_flops(cfg: ModelSection, tokens: float) -> float:
    """Return the FLOPs of the largest matrix product of a block, where a multiplication and an addition count as two.

    C -> 4C in the feed-forward; without one C -> 3C, of Q, K and V.
    """
    return 2 * tokens * cfg.n_embd * (4 if has_feed_forward(cfg) else 3) * cfg.n_embd


def default_sample_size(cfg: ModelSection, vocab_size: int) -> int | None:
    """Return how many ids `train.vocab_sample: auto` takes on a CPU; None: all.

    It costs some quality, and pays where the head is a third of the work or more.
    """
    pays = vocab_size >= LARGE_VOCABULARY and 2 * vocab_size * cfg.n_embd > count_hidden(cfg)
    return round(SAMPLED_SHARE * vocab_size) if pays else None


def update_flops(cfg: ModelSection, vocab_size: int, tokens: int) -> int:
    """Return the operations of an update without its optimizer: 6 per weight and token, and the attention products.

    Kaplan et al. 2020 (arXiv 2001.08361), section 2.1. The head counts, the embedding tables do not.
    """
    weights = count_hidden(cfg) + cfg.n_embd * vocab_size
    attention = 2 * cfg.n_layer * cfg.block_size * cfg.n_embd
    return 6 * tokens * (weights + attention)


def muon_flops(cfg: ModelSection) -> int:
    """Count the operations that Muon adds to an update: Q, K, V and the projection are C x C, two more 4C x C.

    In fp32 `orthogonalise` (training/optim/muon.py) takes 30 C^3 for a square matrix. Of a long one it iterates on the
    Gram matrix: 50 C^3.
    """
    return cfg.n_layer * (4 * 30 + 2 * has_feed_forward(cfg) * 50) * cfg.n_embd**3

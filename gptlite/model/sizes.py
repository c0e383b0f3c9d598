"""The size of a model: parameters by part, and the activation memory of training and scoring per token.

C = n_embd, T = block_size, V = vocab_size, nh = n_head. Memory is in bytes per token of a batch. `word` is the size of
a number in matrix products: 4 bytes in fp32, 2 in bf16. Arithmetic only, without torch.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from gptlite.config.schema import ModelSection
from gptlite.model.activations import ACTIVATIONS

FP32, BF16, BOOL, INT64 = 4, 2, 1, 8  # bytes
WORD = {"fp32": FP32, "bf16": BF16}  # by run.precision

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
        """The number of all parameters, equal to GPT.n_parameters()."""
        return sum(astuple(self))


def count_parameters(cfg: ModelSection, vocab_size: int) -> Parameters:
    """Count the parameters of a GPT without building it."""
    C, n_layer, biases = cfg.n_embd, cfg.n_layer, cfg.biases
    return Parameters(
        embeddings=vocab_size * C,
        positions=cfg.block_size * C if cfg.position == "learned" else 0,
        attention=n_layer * (4 * C * C + ("qkv" in biases) * 3 * C + ("proj" in biases) * C),
        feed_forward=n_layer * has_feed_forward(cfg) * (8 * C * C + ("mlp" in biases) * 5 * C),  # C -> 4C -> C
        norms=count_norms(cfg) * (1 + ("norm" in biases)) * C,
        head=0 if cfg.tie_weights else vocab_size * C,
    )


def has_feed_forward(cfg: ModelSection) -> bool:
    """Whether blocks have a feed-forward, with the norm before it."""
    return cfg.variant != "no_feed_forward"


def count_block_norms(cfg: ModelSection) -> int:
    """The number of LayerNorms in a block."""
    return 0 if cfg.variant == "no_norm" else 1 + has_feed_forward(cfg)


def count_norms(cfg: ModelSection) -> int:
    """The number of LayerNorms: those of the blocks, and a last one with pre-LN."""
    return cfg.n_layer * count_block_norms(cfg) + has_last_norm(cfg)


def has_last_norm(cfg: ModelSection) -> bool:
    """Whether a LayerNorm follows the blocks."""
    return cfg.norm == "pre" and cfg.variant != "no_norm"


def count_hidden(cfg: ModelSection) -> int:
    """The number of parameters in the matrices of the blocks, which Muon can train."""
    return (12 if has_feed_forward(cfg) else 4) * cfg.n_layer * cfg.n_embd**2


def count_hidden_tensors(cfg: ModelSection) -> int:
    """The number of matrices of the blocks: Q, K and V as one, the projection, and two of the feed-forward."""
    return (4 if has_feed_forward(cfg) else 2) * cfg.n_layer


def largest_block_product_flops(cfg: ModelSection, tokens: float) -> float:
    """FLOPs of the largest matrix product of a block, where a multiplication and an addition count as two.

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
    """Operations of the forward and backward pass of an update: 6 per weight and token, and the attention products.

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


def count_tensors(cfg: ModelSection) -> int:
    """The number of parameter tensors: tables, head, norms, the matrices of the blocks, and their biases."""
    tables = 1 + (cfg.position == "learned") + (not cfg.tie_weights)
    of_linear = len({"qkv", "proj"} & cfg.biases) + 2 * has_feed_forward(cfg) * ("mlp" in cfg.biases)
    of_norms = count_norms(cfg) * (1 + ("norm" in cfg.biases))
    return tables + of_norms + count_hidden_tensors(cfg) + cfg.n_layer * of_linear


def count_attention_weights(cfg: ModelSection, attention: str, *, drops: bool) -> int:
    """Attention weights in memory per token and block: nh T, or none with the fused kernel.

    With dropout, `fused_attention` does as `batched_attention`.
    """
    return 0 if attention == "fused" and not drops else cfg.n_head * cfg.block_size


def saves_input(cfg: ModelSection) -> bool:
    """True where autograd saves the input of the activation, not its output, for the backward pass."""
    return ACTIVATIONS[cfg.activation].saves == "input"


def count_saved_by_activation(cfg: ModelSection) -> int:
    """Numbers per token: the output of the activation, which the next layer saves anyway, and its input if saved."""
    if not has_feed_forward(cfg):
        return 0
    return (8 if saves_input(cfg) else 4) * cfg.n_embd


def stream_word(cfg: ModelSection, word: int) -> int:
    """The size of a number between the layers: a residual stream sums in fp32, without it matrix products follow."""
    return word if cfg.variant == "no_residual" else FP32


def kept_by_block(cfg: ModelSection, attention: str, word: int) -> int:
    """Bytes that autograd saves per token in one block.

    A norm saves its input, mean and deviation; a linear layer its input; attention Q, K, V and the weights, the fused
    kernel one log-sum-exp per head instead; dropout its mask.
    """
    C, drops = cfg.n_embd, cfg.dropouts.attention > 0.0
    branches = 1 + has_feed_forward(cfg)
    norms = count_block_norms(cfg) * (C * stream_word(cfg, word) + 2 * FP32)
    inputs = (1 + branches) * C * word + count_saved_by_activation(cfg) * word  # of qkv, proj and up; of down
    weights = count_attention_weights(cfg, attention, drops=drops)
    # With dropout, the weights after it are saved beside those of the softmax.
    attended = 3 * C * word + weights * (2 * word + BOOL if drops else word) + (0 if weights else cfg.n_head * FP32)
    dropout_masks = branches * C * BOOL if cfg.dropouts.residual > 0.0 else 0
    return norms + inputs + attended + dropout_masks


def kept_by_forward(cfg: ModelSection, attention: str, word: int) -> int:
    """Bytes that autograd saves per token before the head: ids, first mask, blocks, last norm and its output."""
    C, stream = cfg.n_embd, stream_word(cfg, word)
    before = INT64 + (C * BOOL if cfg.dropouts.embedding > 0.0 else 0) + C * (FP32 - stream)  # the first norm's input
    after = C * word + (C * stream + 2 * FP32 if has_last_norm(cfg) else 0)
    return before + cfg.n_layer * kept_by_block(cfg, attention, word) + after


def held_by_training(cfg: ModelSection, vocab_size: int, attention: str, word: int) -> int:
    """Peak bytes per token in a forward and backward pass, without the gradients of parameters.

    The peak is at one of three moments around the backward pass, each beside all that is still saved:
    head          logits and their softmax in fp32, which becomes their gradient; of bf16 logits a copy in fp32, too
    feed-forward  of the last block: gradients of the residual stream and around the activation
    attention     of the last block: gradients of the residual stream, of its output, and of its weights or Q, K, V
    """
    C = cfg.n_embd
    logits = vocab_size * (2 * FP32 if word == FP32 else BF16 + 2 * FP32)
    head = kept_by_forward(cfg, attention, word) + logits
    blocks = cfg.n_layer * kept_by_block(cfg, attention, word) + C * FP32
    # Gradients of the activation's output and input; the output itself is freed before, unless it is saved for this.
    feed_forward = blocks + (4 if saves_input(cfg) else 8) * C * word if has_feed_forward(cfg) else 0
    drops = cfg.dropouts.attention > 0.0
    weights = count_attention_weights(cfg, attention, drops=drops)
    if has_feed_forward(cfg):
        freed = C * FP32 + 2 * C * word + count_saved_by_activation(cfg) * word
    else:  # the input of the projection, unless the fused kernel needs it, too: it is its output
        freed = C * word if weights else 0
    # Gradients of the weights after and before the softmax; with dropout, the dropped weights are freed by then.
    attended = blocks - freed + C * word + max((1 if drops else 2) * weights, 3 * C) * word
    return max(head, feed_forward, attended)


def held_by_scoring(cfg: ModelSection, vocab_size: int, attention: str, word: int) -> int:
    """The most that a token takes without a backward pass: bytes.

    Nothing is kept but the residual stream; the logits of one batch live until those of the next exist.
    """
    C, weights = cfg.n_embd, count_attention_weights(cfg, attention, drops=False)
    # Batched products copy Q, K and V to be contiguous; after the fused kernel comes the output of the projection.
    more = 3 * C + 2 * weights if weights else C
    attended = ((1 + 3 + 1) * C + more) * word
    feed_forward = (1 + 4 + 4) * C * word if has_feed_forward(cfg) else 0
    logits = vocab_size * max(word, FP32)
    log_softmax = vocab_size * word + logits + (logits if word < FP32 else 0)  # bf16 logits are widened first
    return C * FP32 + max(attended, feed_forward, log_softmax)

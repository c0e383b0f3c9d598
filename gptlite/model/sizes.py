"""How large a model is: its parameters by part, and the memory that tokens take on their way through it.

Letters: C = n_embd, T = block_size, V = vocab_size, nh = n_head. What a pass holds is counted in bytes for each of the
tokens that go through together; a `word` is what a number takes in matrix products, 4 bytes in fp32 and 2 in bf16.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from gptlite.config.schema import ModelSection

FP32, BF16, BOOL, INT64 = 4, 2, 1, 8  # bytes
WORD = {"fp32": FP32, "bf16": BF16}  # by run.precision


@dataclass(frozen=True)
class Parameters:
    """Trained numbers by the part of the model that they belong to."""

    embeddings: int
    positions: int
    attention: int
    feed_forward: int
    norms: int
    head: int  # 0 where it shares the embeddings

    @property
    def total(self) -> int:
        """All of them, as GPT.n_parameters counts."""
        return sum(astuple(self))


def count_parameters(cfg: ModelSection, vocab_size: int) -> Parameters:
    """The shapes of `model.gpt`, multiplied out."""
    C, n_layer, bias = cfg.n_embd, cfg.n_layer, int(cfg.bias)
    return Parameters(
        embeddings=vocab_size * C,
        positions=cfg.block_size * C if cfg.position == "learned" else 0,
        attention=n_layer * (4 * C * C + bias * 4 * C),  # Q, K, V, projection
        feed_forward=n_layer * (8 * C * C + bias * 5 * C),  # C -> 4C -> C
        norms=count_norms(cfg) * (1 + bias) * C,
        head=0 if cfg.tie_weights else vocab_size * C,
    )


def count_norms(cfg: ModelSection) -> int:
    """LayerNorms: two a block, and a last one where they stand before the branches."""
    return 2 * cfg.n_layer + (cfg.norm == "pre")


def count_hidden(cfg: ModelSection) -> int:
    """Numbers in the matrices inside the blocks, which Muon may move."""
    return 12 * cfg.n_layer * cfg.n_embd**2


def feed_forward_flops(cfg: ModelSection, tokens: float) -> float:
    """Operations of one matrix product of the feed-forward, C -> 4C, for so many tokens: a sum and a product each."""
    return 2 * tokens * cfg.n_embd * 4 * cfg.n_embd


def count_tensors(cfg: ModelSection) -> int:
    """Parameter tensors: tables, head, norms, and four matrices a block."""
    tables = 1 + (cfg.position == "learned") + (not cfg.tie_weights)
    return tables + (1 + cfg.bias) * (count_norms(cfg) + 4 * cfg.n_layer)


def weights_of_attention(cfg: ModelSection, attention: str, *, drops: bool) -> int:
    """Attention weights of one token in one block: nh T, or none where the fused kernel never writes them.

    With dropout the fused path takes the batched one (model.attention).
    """
    return 0 if attention == "fused" and not drops else cfg.n_head * cfg.block_size


def kept_by_activation(cfg: ModelSection) -> int:
    """Numbers of a token: ReLU keeps its output, which is the next layer's input anyway; GELU keeps its input too."""
    return (4 if cfg.activation == "relu" else 8) * cfg.n_embd


def kept_by_block(cfg: ModelSection, attention: str, word: int) -> int:
    """What autograd keeps of a token in one block, for the backward pass: bytes.

    A norm keeps its input, mean and deviation; a linear layer its input; attention Q, K, V and the weights, or the
    fused kernel one log-sum-exp a head; dropout its mask.
    """
    C, drops = cfg.n_embd, cfg.dropout > 0.0
    norms = 2 * (C * FP32 + 2 * FP32)
    inputs = 3 * C * word + kept_by_activation(cfg) * word  # of qkv, proj and up; of down
    weights = weights_of_attention(cfg, attention, drops=drops)
    # With dropout those that are left after it are kept beside those of the softmax.
    attended = 3 * C * word + weights * (2 * word + BOOL if drops else word) + (0 if weights else cfg.n_head * FP32)
    dropout_masks = 2 * C * BOOL if drops else 0
    return norms + inputs + attended + dropout_masks


def kept_by_forward(cfg: ModelSection, attention: str, word: int) -> int:
    """What autograd keeps of a token until the head: the ids, the first mask, all blocks, the last norm, its output."""
    C = cfg.n_embd
    before = INT64 + (C * BOOL if cfg.dropout > 0.0 else 0)
    after = C * word + (C * FP32 + 2 * FP32 if cfg.norm == "pre" else 0)
    return before + cfg.n_layer * kept_by_block(cfg, attention, word) + after


def held_by_training(cfg: ModelSection, vocab_size: int, attention: str, word: int) -> int:
    """The most that a token takes in a forward and backward pass: bytes, gradients of parameters left out.

    The largest of three moments of the backward pass, each with all that was kept and is still to come:
    head          logits, their log-softmax in fp32, and the gradients of both
    feed-forward  of the last block: gradients of the stream and around the activation; the logits are still there
    attention     of the last block: gradients of the stream, of its output, and of its weights or Q, K, V
    """
    C, logits = cfg.n_embd, vocab_size * word
    head = kept_by_forward(cfg, attention, word) + logits + 3 * vocab_size * FP32
    blocks = cfg.n_layer * kept_by_block(cfg, attention, word) + C * FP32 + logits
    # GELU's output is gone before the gradient of its input comes, ReLU's is needed for it.
    feed_forward = blocks + (8 if cfg.activation == "relu" else 4) * C * word
    done = C * FP32 + 2 * C * word + kept_by_activation(cfg) * word
    drops = cfg.dropout > 0.0
    weights = weights_of_attention(cfg, attention, drops=drops)
    # Two gradients meet, and with dropout the dropped weights are gone by then.
    attended = blocks - done + C * word + max((1 if drops else 2) * weights, 3 * C) * word
    return max(head, feed_forward, attended)


def held_by_scoring(cfg: ModelSection, vocab_size: int, attention: str, word: int) -> int:
    """The most that a token takes without a backward pass: bytes.

    Nothing is kept but the residual stream; the logits of one batch live until those of the next exist.
    """
    C, weights = cfg.n_embd, weights_of_attention(cfg, attention, drops=False)
    copies = (3 * C + 2 * weights) * word if weights else 0  # the products want Q, K, V each in one piece
    attended = (1 + 3 + 1) * C * word + copies
    feed_forward = (1 + 4 + 4) * C * word
    logits = vocab_size * max(word, FP32)
    log_softmax = vocab_size * word + logits + (logits if word < FP32 else 0)  # bf16 logits are widened first
    return C * FP32 + max(attended, feed_forward, log_softmax)

"""configs/lesson-notes.yaml is the transformer of the lecture notes: their modules, written anew, give the same logits.

What does not run there is marked "repaired". The notes end with the last block: the LayerNorm and the head after it are
GPT-2's.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptlite.config.loading import load_config
from gptlite.model.gpt import GPT

CFG = load_config(Path(__file__).parents[2] / "configs/lesson-notes.yaml").model
VOCAB, B, T = 50, 2, 40
C, N_HEAD, P = CFG.n_embd, CFG.n_head, CFG.dropout


class HeadAttention(nn.Module):
    def __init__(self, head_size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(C, head_size, bias=False) for _ in range(3))
        self.head_size = head_size
        self.register_buffer("lower", torch.tril(torch.ones(CFG.block_size, CFG.block_size)))
        self.dropout = nn.Dropout(P)

    def forward(self, x: Tensor) -> Tensor:
        _, seq_len, _ = x.shape
        weights = self.query(x) @ self.key(x).transpose(-2, -1) * self.head_size**-0.5
        # Repaired: the notes cut the mask at a T that is not defined.
        weights = weights.masked_fill(self.lower[:seq_len, :seq_len] == 0, float("-inf"))
        weights = self.dropout(F.softmax(weights, dim=-1))
        return weights @ self.value(x)  # repaired: the notes return another name


class MultiHeadAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(HeadAttention(C // N_HEAD) for _ in range(N_HEAD))
        self.proj = nn.Linear(C, C)
        self.dropout = nn.Dropout(P)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


class TransformerBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = MultiHeadAttention()
        self.network = nn.Sequential(nn.Linear(C, 4 * C), nn.ReLU(), nn.Linear(4 * C, C), nn.Dropout(P))
        self.norm_1, self.norm_2 = nn.LayerNorm(C), nn.LayerNorm(C)

    def forward(self, x: Tensor) -> Tensor:
        # Of the two forms in the notes the later one: in the earlier the residual stream itself is normed.
        x = x + self.attention(self.norm_1(x))
        return x + self.network(self.norm_2(x))


class Notes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, C), nn.Embedding(CFG.block_size, C)
        self.blocks = nn.Sequential(*(TransformerBlock() for _ in range(CFG.n_layer)))
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, VOCAB, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        x = self.tokens(idx) + self.positions(torch.arange(idx.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def ours() -> GPT:
    return GPT(CFG, VOCAB, rng=torch.Generator().manual_seed(0)).double()


def with_weights_of(model: GPT) -> Notes:
    """The notes' model with every weight of ours; each of both is used once."""
    own = {name: p.detach() for name, p in model.named_parameters()}
    renamed = {
        "tokens.weight": own.pop("token_embedding.weight"),
        "positions.weight": own.pop("position_embedding.weight"),
        "norm.weight": own.pop("ln_f.weight"),
        "norm.bias": own.pop("ln_f.bias"),
        "head.weight": own.pop("head.weight"),
    }
    names = {"attention.proj": "attn.proj", "network.0": "mlp.up", "network.2": "mlp.down"}
    names |= {"norm_1": "ln_1", "norm_2": "ln_2"}
    for layer in range(CFG.n_layer):
        qkv = own.pop(f"blocks.{layer}.attn.qkv.weight").chunk(3)
        for kind, rows in zip(("query", "key", "value"), qkv, strict=True):
            for head, of_head in enumerate(rows.chunk(N_HEAD)):
                renamed[f"blocks.{layer}.attention.heads.{head}.{kind}.weight"] = of_head
        for theirs, name in names.items():
            for leaf in ("weight", "bias"):
                renamed[f"blocks.{layer}.{theirs}.{leaf}"] = own.pop(f"blocks.{layer}.{name}.{leaf}")
    assert not own
    notes = Notes().double()
    notes.load_state_dict({**renamed, **dict(notes.named_buffers())})
    return notes


def random_idx(length: int) -> Tensor:
    return torch.randint(VOCAB, (B, length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("length", [1, T, CFG.block_size])
def test_the_notes_give_the_same_logits_from_the_same_weights(length):
    model, idx = ours(), random_idx(length)
    torch.testing.assert_close(model(idx), with_weights_of(model).eval()(idx), rtol=0, atol=1e-12)

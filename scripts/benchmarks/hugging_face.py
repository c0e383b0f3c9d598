"""Hugging Face's GPT-2 in a given size."""

from __future__ import annotations

from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.sizes import Size


def build(size: Size) -> GPT2LMHeadModel:
    """Random weights, no dropout, no end-of-text."""
    config = GPT2Config(
        vocab_size=size.vocab_size,
        n_positions=size.block_size,
        n_embd=size.n_embd,
        n_layer=size.n_layer,
        n_head=size.n_head,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)

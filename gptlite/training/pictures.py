"""What `log.attention` shows at each evaluation."""

from __future__ import annotations

from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.data.tokens import Tokens
from gptlite.inference.load import Model
from gptlite.inference.looking import attention_of
from gptlite.runs.images import Pixels, tiled

VALIDATION_TOKENS = 32
MOST_TOKENS = 128  # of a long prompt: with more, a weight is no longer a pixel of its own on a screen


def attention_pictures(model: Model, cfg: RunConfig, validation: Tokens, dist: Dist) -> dict[str, Pixels]:
    """The attention weights of each layer on the fixed text, by tag; none unless they are wanted, and written here."""
    if not (cfg.log.attention and dist.is_main):
        return {}
    layers = attention_of(model.gpt, fixed_text(model, cfg, validation))
    return {f"attention/layer_{i}": tiled(layer.weights) for i, layer in enumerate(layers, start=1)}


def fixed_text(model: Model, cfg: RunConfig, validation: Tokens) -> list[int]:
    """The ids of eval.prompt; where that is shorter than two tokens, of the beginning of the validation text."""
    ids = model.encode(cfg.eval.prompt)
    if len(ids) < 2:
        ids = validation.read(0, min(VALIDATION_TOKENS, validation.n_tokens)).tolist()
    return ids[: min(MOST_TOKENS, cfg.model.block_size)]

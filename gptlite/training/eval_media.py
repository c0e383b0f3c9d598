"""What is shown of the model at each evaluation, beside its numbers."""

from __future__ import annotations

from gptlite.compute.distributed import Dist
from gptlite.config.schema import RunConfig
from gptlite.data.tokens import Tokens
from gptlite.inference.inspect import attention_steps
from gptlite.inference.language_model import LanguageModel
from gptlite.loggers.media import Embeddings, Media, attention_image
from gptlite.tokenizers.readable import labels
from gptlite.training.diagnostics import weight_histograms

VALIDATION_TOKENS = 32
MOST_TOKENS = 128  # of a long prompt: with more, a weight is no longer a pixel of its own on a screen
MOST_EMBEDDINGS = 10_000  # so that the files stay small; the first ids of BPE are the most frequent


def pictures(model: LanguageModel, cfg: RunConfig, validation: Tokens, dist: Dist) -> dict[str, Media]:
    """All that is wanted, by tag: nothing where nothing is written here, or nobody shows it."""
    if not (cfg.log.tensorboard and dist.is_main):
        return {}
    shown: dict[str, Media] = {"embeddings": token_embeddings(model)}
    if cfg.log.attention:
        shown |= attention_pictures(model, cfg, validation)
    if cfg.log.histograms:
        shown |= weight_histograms(model.gpt)
    return shown


def attention_pictures(model: LanguageModel, cfg: RunConfig, validation: Tokens) -> dict[str, Media]:
    """The attention weights of each layer on the fixed text."""
    layers = attention_steps(model.gpt, fixed_text(model, cfg, validation))
    return {f"attention/layer_{i}": attention_image(layer.weights) for i, layer in enumerate(layers, start=1)}


def fixed_text(model: LanguageModel, cfg: RunConfig, validation: Tokens) -> list[int]:
    """The ids of eval.prompt; where that is shorter than two tokens, of the beginning of the validation text."""
    ids = model.encode(cfg.eval.prompt)
    if len(ids) < 2:
        ids = validation.read(0, min(VALIDATION_TOKENS, validation.n_tokens)).tolist()
    return ids[: min(MOST_TOKENS, cfg.model.block_size)]


def token_embeddings(model: LanguageModel) -> Embeddings:
    """The rows of the token embedding table, (at most MOST_EMBEDDINGS, C)."""
    vectors = model.gpt.token_embedding.weight.detach()[:MOST_EMBEDDINGS].float().cpu().numpy()
    shown = labels(model.tokenizer.token_bytes(), range(len(vectors)), model.tokenizer.eot_id)
    return Embeddings([*shown.values()], vectors)

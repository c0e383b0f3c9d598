"""Models without a part of their blocks: they train and are scored; one without a mask does nothing that misleads."""

from __future__ import annotations

import json
import math

import pytest


@pytest.mark.parametrize("values", [["no_residual", "model.init=gpt2"], ["no_feed_forward"], ["no_norm"]], ids=str)
def test_a_variant_trains_is_scored_and_writes(gptlite, values):
    variant, *more = values
    sets = [word for value in (f"model.variant={variant}", *more) for word in ("--set", value)]
    result = gptlite("train", "-c", "nano.yaml", "--name", "v", *sets)
    assert result.code == 0, result.err
    assert "no mask" not in result.out
    scored = json.loads(gptlite("eval", "v", "--json").out)["texts"][0]["rows"][0]
    assert scored["variant"] == variant
    assert 0 < scored["loss"] < math.log(40)
    assert len(gptlite("sample", "v", "--prompt", "the ", "--max-new-tokens", "30").out) >= 30
    assert gptlite("eval", "v", "--attention", "the cat").code == 0
    assert gptlite("eval", "v", "--follow", "the cat").code == 0


def test_without_a_mask_a_model_is_scored_with_a_warning_and_does_nothing_else(gptlite):
    trained = gptlite("train", "-c", "nano.yaml", "--name", "v", "--set", "model.variant=no_mask")
    assert trained.code == 0, trained.err
    assert "its scores are no predictions" in trained.out
    assert "better than" not in trained.out
    assert "sample v" not in trained.out
    assert "now, at its best" not in trained.out
    scored = gptlite("eval", "v")
    assert scored.code == 0
    assert "v 6 has no mask (model.variant: no_mask): it reads the tokens that it is scored on" in scored.out
    for arguments in (
        ["sample", "v"],
        ["sample", "v", "--beams", "2"],
        ["sample", "v", "--beams", "2", "--explain"],
        ["sample", "v", "--logprob", "cat"],
        ["eval", "v", "--attention", "the cat"],
        ["eval", "v", "--follow", "the cat"],
        ["eval", "v", "--per-token"],
        ["eval", "v", "--by-position"],
        ["eval", "v", "--memorised"],
        ["eval", "v", "--exposure-bias"],
    ):
        assert gptlite(*arguments).refuses("this model has no mask (model.variant: no_mask)"), arguments


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["no_residual"], "model.variant is no_residual, but init is zero"),
        (["no_residual", "model.init=previous"], "model.variant is no_residual, but init is previous"),
        (["no_norm", "model.norm=post"], "model.variant is no_norm, but norm is post, and the variants are those of"),
        (["no_norm", "model.bias=[norm]"], "model.bias is [norm], but variant is no_norm, which has no such place"),
        (["no_feed_forward", "model.activation=gelu"], "model.activation is gelu, but variant is no_feed_forward"),
        (["no_mask", "train.scheduled_sampling=0.5"], "train.scheduled_sampling is set, but model.variant is no_mask"),
        (["no_mask", "log.tensorboard=true", "log.attention=true"], "log.attention is set, but model.variant is"),
        (["no_head"], "model.variant is no_head, but it must be no_residual, no_feed_forward, no_norm"),
    ],
    ids=str,
)
def test_what_a_variant_cannot_have_is_refused(gptlite, sets, message):
    variant, *more = sets
    words = [word for value in (f"model.variant={variant}", *more) for word in ("--set", value)]
    assert gptlite("train", "-c", "nano.yaml", *words).refuses(message)

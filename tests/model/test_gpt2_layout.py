import itertools
import json
from typing import get_args

import pytest
import torch
from safetensors.torch import save_file

from gptlite.config.schema import ModelSection
from gptlite.config.values import BiasPlace
from gptlite.model.activations import ACTIVATIONS
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import from_gpt2, hf_config, to_gpt2

POSITIONS = get_args(ModelSection.model_fields["position"].annotation)
ACTIVATIONS_BY_GPT2 = {
    known: [name for name, (_, theirs) in ACTIVATIONS.items() if bool(theirs) == known] for known in (True, False)
}
VARIANTS = [
    dict(zip(("bias", "activation", "tie_weights", "position", "scale_attention"), values, strict=True))
    for values in itertools.product((True, False), ACTIVATIONS_BY_GPT2[True], (True, False), POSITIONS, (True, False))
]
VARIANTS += [{"bias": [place]} for place in get_args(BiasPlace)]


def perturbed(**values) -> GPT:
    cfg = ModelSection(**{"n_layer": 2, "n_head": 2, "n_embd": 12, "block_size": 10, **values})
    model = GPT(cfg, 23, rng=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for i, p in enumerate(model.parameters()):
            p.add_(0.2 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i)))
    return model


def write(model: GPT, folder) -> None:
    (folder / "config.json").write_text(json.dumps(hf_config(model.cfg, 23, 22)))
    save_file(to_gpt2(model), folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_hugging_face_computes_our_logits(variant, tmp_path):
    from transformers import AutoModelForCausalLM

    model = perturbed(**variant)
    write(model, tmp_path)
    theirs, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    idx = torch.randint(23, (2, 10), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(idx).logits, model(idx), rtol=0, atol=1e-5)


LACKING = [{"norm": "post"}, {"scale_embeddings": True}, {"variant": "no_norm"}]
LACKING += [{"activation": name} for name in ACTIVATIONS_BY_GPT2[False]]


@pytest.mark.parametrize("values", LACKING, ids=str)
def test_what_gpt2_lacks_is_refused_by_hugging_face(values, tmp_path):
    from transformers import AutoModelForCausalLM

    write(perturbed(**values), tmp_path)
    with pytest.raises((ValueError, KeyError), match="gptlite"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_each_place_of_dropout_has_its_name_in_gpt2():
    cfg = ModelSection(dropout=0.1, embedding_dropout=0.0, attention_dropout=0.2)
    found = hf_config(cfg, 5, 4)
    assert (found["embd_pdrop"], found["attn_pdrop"], found["resid_pdrop"]) == (0.0, 0.2, 0.1)


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"norm": "post", "bias": True},
        {"position": "none", "tie_weights": False},
        {"bias": ["mlp"], "scale_embeddings": True},
        {"variant": "no_feed_forward", "bias": True},
        {"variant": "no_norm"},
    ],
    ids=str,
)
def test_a_model_that_was_written_is_read_back_equal(variant):
    model = perturbed(**variant)
    other = GPT(model.cfg, 23)
    from_gpt2(to_gpt2(model), other)
    for (name, a), (_, b) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_missing_or_misshapen_tensor_is_named():
    model = perturbed()
    tensors = to_gpt2(model)
    tensors["transformer.wte.weight"] = torch.zeros(3, 12)
    with pytest.raises(ValueError, match=r"transformer\.wte\.weight has shape \(3, 12\), not \(23, 12\)"):
        from_gpt2(tensors, model)
    del tensors["transformer.wte.weight"]
    with pytest.raises(ValueError, match=r"transformer\.wte\.weight is missing"):
        from_gpt2(tensors, model)

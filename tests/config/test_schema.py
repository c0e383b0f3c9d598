import re

import pytest
from pydantic import ValidationError

from gptlite.config.keys import KEYS, describe_accepted, is_accepted
from gptlite.config.loading import load_config
from gptlite.config.schema import SECTIONS, ModelSection, RunConfig, TokenizerSection
from gptlite.config.training import TrainSection
from gptlite.other_programs import MEANINGS

SENTENCES = [meaning for meaning in MEANINGS["key"].values() if " " in meaning]


def test_null_and_derived_numbers_have_their_meaning():
    assert ModelSection(n_embd=160, n_head=5).head_size == 32
    assert [TokenizerSection(vocab_size=size).bpe_vocab_size for size in (None, 300)] == [4096, 300]
    # A constant schedule falls in its last fifth unless told.
    decays = [TrainSection(schedule="constant", decay_fraction=each).constant_decay for each in (None, 0.0)]
    assert decays == [0.2, 0.0]


def test_the_warm_up_is_cut_to_the_number_of_updates():
    def effective(**values):
        return TrainSection(warmup_steps=50, **values).effective_warmup_steps

    assert [effective(max_steps=steps) for steps in (3, 50, 51)] == [3, 50, 50]
    assert effective() == effective(max_minutes=1.0) == 50


def test_with_values_replaces_and_validates_again():
    cfg = RunConfig().with_values({"train.micro_batch_size": 8, "run.device": "cpu"})
    assert (cfg.train.micro_batch_size, cfg.run.device, cfg.train.lr) == (8, "cpu", RunConfig().train.lr)
    with pytest.raises(ValidationError, match="micro_batch_size"):
        RunConfig().with_values({"train.micro_batch_size": 7})
    with pytest.raises(ValidationError, match="no_such"):
        RunConfig().with_values({"train.no_such": 7})


def test_two_configs_share_no_list():
    RunConfig().sample.stop.append("x")
    assert RunConfig().sample.stop == []


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_a_description_and_accepted_values(name):
    field = SECTIONS[name.partition(".")[0]].fields()[KEYS[name]]
    assert field.description
    assert not field.description.endswith(".")
    assert describe_accepted(name)
    assert is_accepted(name, field.default)


# Zero, one and what lies just outside each range, by the meaning of the quantity.
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("run.seed", [0, 2**63 - 1], [-1, 2**63, 1.0, True]),
        ("run.threads", ["auto", 1], [0, "1", "Auto", None, True]),
        ("run.compile", ["auto", True, False], [1, 0, "yes", "true", None]),
        ("run.dir", ["runs", "~/x y"], ["", " ", "a\0b", 3, None, ["runs"]]),
        ("data.source", ["a.txt", ["a", "b"]], ["", [], [""], ["a", 1], 3, None, {"a": 1}]),
        ("data.encoding", ["utf-8", "UTF8", "cp1252"], ["utf-99", "base64", "rot13", "undefined", "", "\0", "ü", None]),
        ("data.val_fraction", [0.5, 1e-9], [0, 0.0, 0.51, "0.1", None]),
        ("tokenizer.kind", ["char", "o200k_base"], ["Char", "gpt4", None]),
        ("tokenizer.vocab_size", [257, None], [256, 0, "257", 300.0]),
        ("model.dropout", [0, 0.0, 0.99], [1, 1.0, 0.999999999999, -0.1, float("nan")]),
        ("model.residual_dropout", [None, 0, 0.99], [1, 0.991, -0.1]),
        ("model.bias", [True, False, ["qkv"], ["norm", "mlp"]], [[], "qkv", ["head"], None, 1]),
        ("model.init", ["zero", "gpt2", "torch"], ["xavier", None, 0]),
        ("train.lr", [1, 3e-4], [0, 0.0, -1.0, float("nan"), float("inf"), True, "3e-4", 10**400]),
        ("train.epochs", [None, 1, 0.5, 1e-9, 1_000_000], [0, 0.0, -1, 1_000_001, float("inf"), "auto", True]),
        ("train.min_lr_ratio", [0, 1], [1.01, -0.01]),
        ("train.grad_clip", [None, 0.1], [0, float("inf")]),
        ("train.patience", [None, 1], [0, 1.5]),
        ("eval.prompt", ["", "a\n\0"], [None, 3, "\ud800"]),
        ("sample.temperature", [0, 0.0, 5.0], [-0.1, None]),
        ("sample.top_p", [None, 1, 1.0, 0.1], [0, 0.0, 1.1]),
        ("sample.stop", [[], ["a"]], ["a", [""], [1], None]),
    ],
)
def test_a_key_takes_its_range_and_nothing_else(name, good, bad):
    assert [value for value in good if not is_accepted(name, value)] == []
    assert [value for value in bad if is_accepted(name, value)] == []


@pytest.mark.parametrize("sentence", SENTENCES)
def test_an_explanation_names_keys_that_exist_and_values_that_they_accept(sentence):
    named = re.findall(rf"\b(?:{'|'.join(SECTIONS)})\.[a-z_0-9]+", sentence)
    assert set(named) <= set(KEYS)
    load_config(None, re.findall(r"[a-z]+\.\w+=[\w.]*\w", sentence))


def test_every_name_of_another_program_means_an_existing_key_or_section_and_stands_once():
    assert {meaning for meaning in MEANINGS["key"].values() if " " not in meaning} <= set(KEYS)
    assert set(MEANINGS["section"].values()) <= set(SECTIONS)
    for table in MEANINGS.values():
        names = " ".join(table).split()
        assert sorted(names) == sorted(set(names))
        assert not set("".join(names)) & {"-", "."}
    words = set(" ".join(MEANINGS["key"]).split())
    assert not words & set(KEYS.values()), "a key's own name is found before those of other programs"

import re

import pytest

from gptlite.config.keys import KEYS, explain_key, suggest_key, suggest_section
from gptlite.config.loading import load_config
from gptlite.config.schema import SECTIONS
from gptlite.other_programs import MEANINGS

SENTENCES = [meaning for meaning in MEANINGS["key"].values() if " " in meaning]


@pytest.mark.parametrize(
    ("section", "key", "meant"),
    [
        ("train", "n_layer", ["model.n_layer"]),
        ("model", "batch_size", ["train.batch_size", "eval.batch_size"]),
        ("eval", "batch-size", ["eval.batch_size"]),
        (None, "every", ["eval.every", "save.every", "log.every"]),
        (None, "train.lr", ["train.lr"]),
        ("train", "LR", ["train.lr"]),
        ("model", "block-size", ["model.block_size"]),
        ("model", "d_model", ["model.n_embd"]),
        ("model", "hidden_size", ["model.n_embd"]),
        ("model", "num_layers", ["model.n_layer"]),
        ("model", "seq_len", ["model.block_size"]),
        ("train", "learning_rate", ["train.lr"]),
        ("train", "max_iters", ["train.max_steps"]),
        ("train", "num_train_epochs", ["train.epochs"]),
        ("train", "eval_interval", ["eval.every"]),
        ("train", "warmup_stpes", ["train.warmup_steps"]),
        ("train", "learnig_rate", ["train.lr"]),
        ("run", "droput", ["model.dropout"]),
        ("model", "xyzzy", []),
        ("tokenizer", "type", ["tokenizer.kind"]),
        ("train", "iters", ["train.max_steps"]),
        ("sample", "temp", ["sample.temperature"]),
        (None, "val_file", ["data.val_source"]),
    ],
)
def test_an_unknown_key_suggests_what_was_meant(section, key, meant):
    assert suggest_key(section, key) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [("training", "train"), ("Model", "model"), ("optimizer", "train"), ("modle", "model"), ("xyzzy", None)],
)
def test_an_unknown_section_suggests_what_was_meant(name, meant):
    assert suggest_section(name) == meant


@pytest.mark.parametrize("key", ["teacher_forcing_ratio", "train.teacher_forcing_ratio", "Teacher-Forcing"])
def test_the_opposite_of_a_key_is_explained_and_not_suggested(key):
    assert "train.scheduled_sampling is the opposite" in explain_key(key)
    assert suggest_key("train", key) == []
    assert explain_key("train.lr") is None


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

"""The choice of `--minutes`: invariants over texts, minutes and machines, and its arithmetic against training's own."""

from __future__ import annotations

import itertools

import pytest

from gptlite.cli.train.configs import fit_to
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError, DataError
from gptlite.model.sizes import count_hidden
from gptlite.planning.choose_sizes import CHOSEN, Budget, choose_sizes
from gptlite.planning.shapes import Shape

TEXTS = (1000, 5000, 40_000, 200_000, 1_100_000, 11_000_000, 10**9, 10**12)
MINUTES = (0.25, 1.0, 3.0, 10.0, 60.0, 1e4)
SPEEDS = (8, 64, 512, 65_536)


def parameters(sizes: dict) -> int:
    return count_hidden(RunConfig().with_values(sizes).model)


@pytest.mark.parametrize(("text", "minutes", "speed"), [*itertools.product(TEXTS, MINUTES, SPEEDS)])
def test_every_choice_is_a_config_that_can_be_trained(text, minutes, speed):
    sizes = choose_sizes(text, minutes, speed)
    assert set(sizes) == set(CHOSEN)
    cfg = RunConfig().with_values(sizes)
    assert 0 < cfg.train.max_minutes <= minutes
    assert cfg.eval.batch_size <= cfg.train.batch_size  # so evaluation fits in memory where training does
    # A window of training needs one token more than the context; a token of the largest vocabulary has four bytes.
    assert 0.9 * text / (4 if cfg.tokenizer.kind == "bpe" else 1) > cfg.model.block_size + 1


@pytest.mark.parametrize(("text", "speed"), [*itertools.product(TEXTS, SPEEDS)])
def test_more_minutes_never_make_the_model_smaller(text, speed):
    chosen = [parameters(choose_sizes(text, minutes, speed)) for minutes in MINUTES]
    assert chosen == sorted(chosen)


@pytest.mark.parametrize("text", TEXTS)
def test_time_and_speed_choose_the_same_model(text):
    # But not as many updates: 20 ms of each are no matrix products, whatever the speed.
    long, quick = choose_sizes(text, 8.0, 64), choose_sizes(text, 1.0, 512)
    follow_updates = {"data.val_max_bytes", "model.dropout", "model.init", "train.max_minutes", "train.warmup_steps"}
    follow_updates |= {"train.weight_decay", "eval.every", "save.every"}
    assert {key: long[key] for key in long.keys() - follow_updates} == {
        key: quick[key] for key in quick.keys() - follow_updates
    }
    assert quick["train.warmup_steps"] <= long["train.warmup_steps"]


def test_an_update_takes_as_long_as_was_measured():
    # At 256 GFLOP/s: characters of 1.1 MB in three minutes, and 11 MB with 4,096 ids in ten, 2,563 and 1,466 updates.
    three, ten = Budget(1_115_394, 1.0, 65, 3.0, 256), Budget(11_000_000, 1.0, 97, 10.0, 256)
    assert three.count_updates(Shape(4, 128, 128, 16).update_flops(100)) == pytest.approx(2563, rel=0.15)
    assert ten.count_updates(Shape(4, 192, 512, 8).update_flops(4096)) == pytest.approx(1466, rel=0.15)


def test_a_gpu_gets_a_model_whose_matrices_are_large_and_time_to_start_its_kernels():
    # 72 epochs of 36 KB in updates of 16 x 128 characters are 1,266; by operations they would take half a second.
    assert choose_sizes(40_000, 3.0, 32_768)["train.max_minutes"] * 60 > 1200 * 0.01
    assert choose_sizes(11_000_000, 0.5, 32_768)["model.n_embd"] == 384
    assert choose_sizes(11_000_000, 0.5 * 32_768 / 4096, 4096)["model.n_embd"] < 384


def test_characters_of_a_short_text_are_chosen_where_a_large_vocabulary_would_be_learned_by_heart():
    # The line was measured with 1.1 MB on 64 GFLOP/s: BPE is better in three minutes, characters in six.
    kinds = [choose_sizes(1_115_394, minutes, 64)["tokenizer.kind"] for minutes in (1.0, 3.0, 6.0, 60.0)]
    assert kinds == ["bpe", "bpe", "char", "char"]
    assert choose_sizes(11_000_000, 600.0, 64)["tokenizer.vocab_size"] == 4096
    # With 8e12 operations six texts of 160 to 300 KB are better as characters, by 0.04 to 1.7; five of 1 to 2 MB worse.
    assert [choose_sizes(n, 1.0, 128)["tokenizer.kind"] for n in (300_000, 1_000_000)] == ["char", "bpe"]


def test_a_long_training_on_a_long_text_gets_a_longer_context():
    # Measured: 400 updates of 3 x 96 are best with 64 tokens, 700 with 256 in C, JavaScript, JSON and paths, while
    # prose is alike with both; 1,500 of 4 x 192 with 512 in code, but not 700.
    choices = [choose_sizes(11_000_000, minutes, 64) for minutes in (1.0, 1.5, 3.0, 10.0, 30.0, 60.0)]
    assert [each["model.block_size"] for each in choices] == [64, 256, 256, 256, 256, 512]


@pytest.mark.parametrize(
    ("text_bytes", "minutes", "init"),
    [
        (40_000, 1.0, "zero"),
        (200_000, 3.0, "zero"),  # characters
        (1_115_394, 1.0, "zero"),
        (1_115_394, 3.0, "previous"),  # BPE, 1,100 updates: 2.195, with zero 2.213
        (1_115_394, 60.0, "zero"),  # characters: 2.132, with previous 2.146
        (11_000_000, 1.0, "zero"),  # 400 updates: 1.760, with previous 1.792
        (11_000_000, 10.0, "previous"),
    ],
)
def test_bpe_with_updates_enough_begins_with_previous_token_heads(text_bytes, minutes, init):
    assert choose_sizes(text_bytes, minutes, 64)["model.init"] == init


def test_text_that_is_read_often_gets_more_weight_decay():
    # Measured: 0.3 instead of 0.1 gains 0.007 after 4.9 epochs, nothing after 2.4, and loses 0.010 after 1.5.
    assert choose_sizes(11_000_000, 3.0, 256)["train.weight_decay"] == 0.1
    assert choose_sizes(11_000_000, 60.0, 256)["train.weight_decay"] == 0.3
    assert choose_sizes(40_000, 1.0, 64)["train.weight_decay"] == 0.3
    assert choose_sizes(1_115_394, 6.0, 64)["train.weight_decay"] == 0.1  # characters, without a teacher


def test_characters_that_are_read_often_get_a_teacher_and_dropout():
    # Measured, bits per byte: 200 KB, 34 epochs 2.25 with a weight of 0.5 and 2.22 with 0.3; 255 KB, 27 epochs with 0.3
    # 2.44 and without dropout 2.54; 40 KB, 68 epochs 2.56 with dropout 0.2 and 2.70 without, 2.69 with dropout and no
    # teacher; 1.1 MB, 5 epochs 2.19 with a weight of 0.5, 2.15 without; of a wider model 2.06 with 0.2, 2.09 without.
    wanted = {
        (200_000, 6.0): (0.3, 0.1),
        (40_000, 1.0): (0.5, 0.0),
        (40_000, 3.0): (0.5, 0.2),
        (1_115_394, 3.0): (0.2, 0.0),
        (2_700_000, 3.0): (0.0, 0.0),
        (1_115_394, 10.0): (0.2, 0.0),
    }
    for (text_bytes, minutes), expected in wanted.items():
        sizes = choose_sizes(text_bytes, minutes, 256)
        assert sizes["tokenizer.kind"] == "char"
        assert (sizes["train.ngram_teacher"], sizes["model.dropout"]) == expected
    assert choose_sizes(11_000_000, 600.0, 256)["train.ngram_teacher"] == 0.0
    # 24,000 characters, 2,465 different ones: 2.84 with a weight of 0.9, 3.00 with 0.5
    chinese = choose_sizes(67_678, 3.0, 256, bytes_per_character=2.8, characters=2465)
    assert (chinese["tokenizer.kind"], chinese["train.ngram_teacher"]) == ("char", 0.9)


def test_epochs_are_of_characters_however_many_bytes_they_have():
    narrow, wide = choose_sizes(45_000, 60.0, 256), choose_sizes(135_000, 60.0, 256, bytes_per_character=3.0)
    # There are as many characters in both, but a text of three times the bytes is read 3^0.2 times as often.
    assert wide["train.max_minutes"] / narrow["train.max_minutes"] == pytest.approx(3**0.2, rel=0.02)


def test_characters_of_a_shorter_text_are_read_more_often_and_those_of_bpe_less():
    # 3 KB of Python in a minute: 3.281 after 48 epochs, 2.244 after 290; 1.5 KB of prose 3.755 and 3.366
    minutes = [choose_sizes(n_bytes, 60.0, 256)["train.max_minutes"] for n_bytes in (2_000, 10_000, 39_000)]
    assert minutes == pytest.approx([minutes[0]] * 3, rel=0.1)
    short, longer = (choose_sizes(n, 60.0, 256, kind="bpe")["train.max_minutes"] for n in (20_000, 40_000))
    assert longer > 2 * short


def test_a_tokenizer_that_is_given_gets_its_own_sizes():
    bpe, char = choose_sizes(40_000, 3.0, 256, kind="bpe"), choose_sizes(11_000_000, 3.0, 256, kind="char")
    assert (bpe["tokenizer.vocab_size"], bpe["train.ngram_teacher"]) == (512, 0.0)
    assert (bpe["train.temperature"], choose_sizes(40_000, 1.0, 64)["train.temperature"]) == (0.92, 1.0)
    assert (char["tokenizer.vocab_size"], char["model.init"]) == (None, "zero")


def test_a_large_alphabet_takes_longer():
    few, many = (choose_sizes(60_000, 600.0, 256, characters=n)["train.max_minutes"] for n in (100, 3000))
    assert many > 1.2 * few


def test_a_text_or_a_time_that_is_too_small_is_refused_with_what_would_be_enough():
    with pytest.raises(DataError, match=r"the text has 999 bytes, .* Give 1,000 bytes or more"):
        choose_sizes(999, 1.0, 64)
    with pytest.raises(ConfigError) as refused:
        choose_sizes(1_000_000, 1e-4, 64)
    needed = float(str(refused.value).rpartition("Give ")[2].split()[0])
    choose_sizes(1_000_000, 1.5 * needed, 64)


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"model.n_embd": 100}, {"model.n_head": 2}),
        ({"model.n_embd": 31}, {"model.n_head": 1}),
        ({"model.n_head": 5}, {"model.n_embd": 130}),
        ({"tokenizer.kind": "char"}, {"tokenizer.vocab_size": None}),
        ({"tokenizer.vocab_size": 300}, {"tokenizer.kind": None}),
        ({"train.micro_batch_size": 12}, {"train.batch_size": 24}),
    ],
)
def test_what_is_given_wins_and_what_depends_on_it_follows(given, fitted):
    sizes = {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 512, "train.batch_size": 16}
    sizes |= {"model.n_head": 4, "model.n_embd": 128}
    found = fit_to(sizes, given)
    assert not set(found) & set(given)
    assert {key: found.get(key) for key in fitted} == fitted


def test_no_dropout_is_chosen_where_every_place_has_its_own():
    own = {f"model.{place}_dropout": 0.1 for place in ("embedding", "attention", "residual")}
    sizes = choose_sizes(40_000, 60.0, 64)
    assert sizes["model.dropout"] > 0
    assert "model.dropout" in fit_to(sizes, dict(list(own.items())[:2]))
    assert "model.dropout" not in fit_to(sizes, own)


def test_a_text_that_is_read_too_often_gets_dropout_and_in_the_end_less_time():
    sizes = [choose_sizes(40_000, minutes, 64) for minutes in (0.03, 0.06, 60.0)]
    assert [each["model.dropout"] for each in sizes] == sorted(each["model.dropout"] for each in sizes)
    assert sizes[0]["train.max_minutes"] == 0.03
    assert sizes[2]["train.max_minutes"] == choose_sizes(40_000, 120.0, 64)["train.max_minutes"] < 60
    assert choose_sizes(10**9, 60.0, 64)["train.max_minutes"] == 60.0


def test_validation_text_that_cannot_be_scored_in_the_time_is_shortened():
    assert choose_sizes(11_000_000, 3.0, 64)["data.val_max_bytes"] == RunConfig().data.val_max_bytes
    assert choose_sizes(11_000_000, 0.3, 64)["data.val_max_bytes"] < 1_100_000

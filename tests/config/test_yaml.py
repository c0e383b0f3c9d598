import math

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gptlite.config.yaml import YamlError, parse_scalar, read, write

# What the core schema of the YAML 1.2.2 specification (10.3.2) says of each.
CORE = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "FALSE": False,
    "0": 0,
    "-19": -19,
    "+3": 3,
    "010": 10,
    "0o14": 12,
    "0xFF": 255,
    "3e-4": 0.0003,
    "1.": 1.0,
    ".5": 0.5,
    "-1E3": -1000.0,
    ".inf": math.inf,
    "-.INF": -math.inf,
    "on": "on",
    "yes": "yes",
    "No": "No",
    "12:30": "12:30",
    "2001-12-14": "2001-12-14",
    "1_000": "1_000",
    "0b11": "0b11",
    "-0x1": "-0x1",
    "tRue": "tRue",
    "nUll": "nUll",
    "e3": "e3",
    ".": ".",
    "=": "=",
}


@pytest.mark.parametrize(("text", "meaning"), CORE.items())
def test_a_plain_scalar_means_what_yaml_1_2_says(text, meaning):
    value = read(f"key: {text}").value["key"]
    assert value == meaning
    assert type(value) is type(meaning)


def test_nan_is_a_number():
    assert all(math.isnan(parse_scalar(word)) for word in (".nan", ".NaN", ".NAN"))


def test_a_quoted_scalar_is_text():
    assert read("""["3", '3', "null", 'a\\d']""").value == ["3", "3", "null", "a\\d"]


def test_every_key_remembers_its_line():
    document = read("# comment\na: 1\n\nb:\n  c: [1,\n    2]\n  d: >\n    text\n")
    assert document.lines == {("a",): 2, ("b",): 4, ("b", "c"): 5, ("b", "d"): 7}


REFUSED = {
    "a: 1\n\tb: 2": (2, "tab"),
    "a: 'x": (1, "quote is never closed"),
    "a: 1\nb: c: d": (2, "':' does not belong here"),
    'a: "C:\\data"': (1, "single quotes"),
    "a: [1,\nb": (2, "bracket is never closed"),
    "a:\n    b: 1\n  c: 2": (3, "indentation"),
    "a: 1\nb\nc: 2": (3, "no ':'"),
    "a: &x 1": (1, "anchors and aliases"),
    "a: *x": (1, "anchors and aliases"),
    "b: 1\na: !!python/name:os.system x": (2, "tags"),
    "a: 1\n---\nb: 2": (2, "second document"),
    "a: 1\nb: {c: 2, c: 3}": (2, "b.c was given before, in line 2"),
    "a: 1\nb: \0": (2, r"U\+0000"),
    'a: "\\UFFFFFFFF"': (1, "escape"),
    "? [a]\n: b": (1, "key must be a word"),
    "[" * 60000: (1, "deep"),
    "- " * 30000: (1, "deep"),
}


@pytest.mark.parametrize("text", REFUSED, ids=[repr(text[:20]) for text in REFUSED])
def test_yaml_that_a_config_may_not_use_is_refused_with_its_line(text):
    line, reason = REFUSED[text]
    with pytest.raises(YamlError, match=reason) as caught:
        read(text)
    assert caught.value.line == line


any_text = st.text() | st.text(st.characters(codec="utf-8", categories=["Cc", "Cf", "Zl", "Zs", "Po", "Nd"]))
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text
values |= st.lists(values, max_size=3)


@given(values)
@example("...")
@example("... a")
def test_a_written_value_reads_back_equal(value):
    assert read(f"key: {write(value)}").value == {"key": value}


@given(values)
def test_a_reader_of_yaml_1_1_reads_the_same_value(value):
    assert yaml.safe_load(f"key: {write(value)}") == {"key": value}


def test_only_text_that_a_reader_would_convert_is_quoted():
    converted = ["3e-4", "on", "No", "12:30", "2001-12-14", "0o7", "010", "1_000", "null", "~", "y", "", ".5_0"]
    assert list(map(write, converted)) == [f'"{text}"' for text in converted]
    texts = ["runs", "data/prepared", "utf-8", "a b", "./x", "onto"]
    assert list(map(write, texts)) == texts

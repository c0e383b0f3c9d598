"""Damaged configs end in a config or in a ConfigError with one short line per problem, never in another exception."""

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gptlite.config.loading import dump_config, load_config
from gptlite.config.schema import RunConfig
from gptlite.errors import ConfigError

GOOD = dump_config(RunConfig()).encode()
PIECES = [
    b"\t", b"\r", b"\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b" ", b":", b": ", b"- ", b"#", b"[", b"]", b"{", b"}",
    b",", b"'", b'"', b"\\", b"&a ", b"*a", b"<<: ", b"!!int ", b"? ", b"| ", b"> ", b"%YAML 9.9\n", b"%TAG ! !\n",
    b"---\n", b"...\n", b"@", b"`", b".nan", b"-.inf", b"1e999", b"-1", b"0", b"9" * 400, b"9" * 5000, b"null",
    b"yes", b"true", b"x" * 3000, b"train:\n", b"model: 3\n", b"lr: 1\n", b"\xc2\x85", b"\xe2\x80\xa8",
    b'"\\UFFFFFFFF"', b'"\\ud800"', b"[" * 50, b"0x", b"0o8", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"run.seed: 3\n",
]  # fmt: skip
edits = st.tuples(st.integers(0, len(GOOD)), st.integers(0, 30), st.sampled_from(PIECES) | st.binary(max_size=4))


def damaged(changes):
    data = GOOD
    for start, length, piece in changes:
        data = data[:start] + piece + data[start + length :]
    return data


def load(data, overrides=()):
    """The config, or the problems of the ConfigError."""
    path = Path("fuzz.yaml")
    path.write_bytes(data)
    try:
        return load_config(path, overrides)
    except ConfigError as error:
        return tuple(map(str, error.problems))


def check_outcome(outcome):
    if isinstance(outcome, RunConfig):
        return
    assert outcome
    for problem in outcome:
        assert len(problem) < 250
        assert problem.isprintable(), "one line, whatever the value"


def test_a_damaged_file_is_a_config_or_a_config_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = set()

    @settings(max_examples=500)
    @given(st.lists(edits, min_size=1, max_size=3))
    @example([(GOOD.index(b"1337"), 0, b"2")])  # few single changes are a config
    def check(changes):
        outcome = load(damaged(changes))
        check_outcome(outcome)
        seen.add(type(outcome))

    check()
    assert seen == {RunConfig, tuple}, "both ends are reached"


def test_any_bytes_and_any_override_are_a_config_or_a_config_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @settings(max_examples=200)
    @example(b"a: 1", ["run.seed=0x" + "f" * 999])
    @given(
        st.binary(max_size=40), st.lists(st.text(max_size=20) | st.builds("train.lr={}".format, st.text()), max_size=2)
    )
    def check(data, overrides):
        check_outcome(load(data, overrides))

    check()

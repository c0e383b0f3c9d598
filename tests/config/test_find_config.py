from pathlib import Path

import pytest

from gptlite.config.loading import find_config
from gptlite.errors import ConfigError

SHIPPED = Path(__file__).parents[2] / "configs"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(path):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


@pytest.mark.parametrize("name", ["small.yaml", "small"])
def test_a_shipped_config_is_found_by_name_beside_a_folder_of_its_name(name):
    Path("small").mkdir()
    assert find_config(name) == SHIPPED / "small.yaml"


def test_the_path_as_given_comes_first_then_configs_then_the_shipped_ones():
    in_configs = write("configs/small.yaml")
    assert find_config("small") == in_configs
    here = write("small.yaml")
    assert find_config("small") == here
    assert find_config("configs/small.yaml") == in_configs
    other = write("a/b.conf")
    assert find_config(other) == other


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "smal.yaml",
            r"smal\.yaml: there is no such config here, in configs/ or built in\. .* Did you mean small\.yaml\?",
        ),
        (
            "elsewhere/my.yaml",
            "The configs are char.yaml, mine.yaml, shakespeare-char.yaml, small.yaml, tiny.yaml, lesson-.* and 16 more",
        ),
        ("configs", "this is a folder"),
        ("", '^"": '),
        ("a\0b", r'"a\\x00b": '),
        ("x" * 9000, "xxx[.][.][.]: there is no such"),
    ],
)
def test_a_missing_config_says_where_it_was_searched_and_which_exist(name, message):
    write("configs/mine.yaml")
    with pytest.raises(ConfigError, match=message) as caught:
        find_config(name)
    assert len(str(caught.value)) < 480

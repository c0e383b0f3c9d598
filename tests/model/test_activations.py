"""A value of the schema that a table lacks is an error, never silently another one."""

from __future__ import annotations

from typing import get_args

import pytest

from gptlite.config.schema import ModelSection, RunSection
from gptlite.model.activations import ACTIVATIONS
from gptlite.model.attention import ATTENTION
from gptlite.model.gpt import GPT
from gptlite.model.gpt2_layout import hf_config


def test_the_tables_hold_exactly_the_values_of_the_schema():
    assert set(ACTIVATIONS) == set(get_args(ModelSection.model_fields["activation"].annotation))
    assert {"auto", *ATTENTION} == set(get_args(RunSection.model_fields["attention"].annotation))


@pytest.mark.parametrize("act", [lambda cfg: GPT(cfg, 5), lambda cfg: hf_config(cfg, 5, 4)], ids=["model", "config"])
def test_an_activation_outside_the_table_is_refused(act):
    cfg = ModelSection().model_copy(update={"activation": "swish"})
    with pytest.raises(KeyError, match="swish"):
        act(cfg)

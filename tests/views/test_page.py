"""Text that is no HTML, numbers that stay numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gptlite.views.page import few_digits, script_safe


def test_json_inside_a_script_ends_no_script_and_reads_back():
    data = {"text": "</script><!--<b>&amp;\u2028\ud800\"'\\"}
    written = script_safe(data)
    assert "<" not in written
    assert written.isascii()
    assert json.loads(written) == data


def test_numbers_keep_four_significant_digits():
    assert few_digits(np.array([[1.23456, -0.000123456], [123456.0, 0.0]])) == [[1.235, -0.0001235], [123500.0, 0.0]]
    assert few_digits(np.array([2 / 3], np.float32), 3) == [0.667]


def test_a_number_that_json_has_not_is_refused_instead_of_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_safe({"x": float("nan")})

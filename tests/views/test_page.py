"""Data in a page: safe inside a script, and read back as it was."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gptlite.views.page import rounded, script_safe


def test_json_inside_a_script_does_not_end_it_and_reads_back():
    data = {"text": "</script><!--<b>&amp;\u2028\ud800\"'\\"}
    written = script_safe(data)
    assert "<" not in written
    assert written.isascii()
    assert json.loads(written) == data


def test_numbers_keep_four_significant_digits():
    assert rounded(np.array([[1.23456, -0.000123456], [123456.0, 0.0]])) == [[1.235, -0.0001235], [123500.0, 0.0]]
    assert rounded(np.array([2 / 3], np.float32), 3) == [0.667]


def test_a_number_that_json_lacks_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_safe({"x": float("nan")})

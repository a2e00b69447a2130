import math

import hypothesis
import pytest
from hypothesis import strategies as st

from plrvo.accounting.printed import rounded_down, rounded_up


@hypothesis.given(st.floats(min_value=0, max_value=1e300), st.integers(2, 6))
def test_what_is_printed_is_never_on_the_wrong_side_and_never_far(value, digits):
    up, down = float(rounded_up(value, digits)), float(rounded_down(value, digits))
    assert down <= value <= up
    assert up - down <= max(10.0 ** (1 - digits) * value * 1.000001, 5e-324)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.774, 3.0, 2999.0, 1e-9])
def test_numbers_of_few_digits_stay_as_they_are(value):
    assert float(rounded_up(value)) == float(rounded_down(value)) == value


def test_infinity_is_told():
    assert rounded_up(math.inf) == rounded_down(math.inf) == "inf"

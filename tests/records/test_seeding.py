"""Whether noise can be repeated is said before any epsilon; what is not said counts as not private."""

import pytest

from plrvo.records.seeding import CALLERS_GENERATORS, FIXED_SEED, UNSEEDED, is_seeded, warning


@pytest.mark.parametrize(
    ("run", "seeded"),
    [
        ({"randomness": UNSEEDED}, False),
        ({"randomness": FIXED_SEED}, True),
        ({"randomness": CALLERS_GENERATORS}, True),
        ({"randomness": UNSEEDED + " of a dice"}, True),
        ({"seeded": True, "randomness": UNSEEDED}, True),
        ({"seeded": False}, False),
        ({"seeded": 0}, None),
        ({"randomness": None}, None),
        ({}, None),
    ],
    ids=str,
)
def test_only_the_one_sentence_is_unseeded(run, seeded):
    assert is_seeded(run) is seeded
    said = warning(run)
    assert (said is None) == (seeded is False)
    if seeded is not False:
        assert said.startswith("NOT PRIVATE" if seeded else "NOT KNOWN TO BE PRIVATE")

"""The audit guide prints what results/audit holds, rounded down, and every result names the command that made it."""

import math

import pytest
from checks.audits import COMMANDS
from docs.figures.audit_clipbkd import LABELS, PANELS, panel, rows
from docs.figures.audit_tables import GUIDE, TABLES, models_trained, page

from plrvo.audit.one_run import differences
from plrvo.audit.statistics import Counts, epsilon_bound, epsilon_opt


def test_the_guide_shows_the_stored_results():
    text = GUIDE.read_text(encoding="utf-8")
    assert page(text) == text
    assert all(make() in text for make in TABLES)
    assert f"{models_trained():,} models in all" in text


def test_stored_results_follow_from_their_counts():
    """Every audited epsilon is computed again from the numbers of errors, and every verdict from it."""
    for name in COMMANDS:
        for row in rows(name):
            audited = row["epsilon_audited"]
            assert row["verdict"] == ("refuted" if audited > row["epsilon_claimed"] else "consistent")
            if "canaries" in row:
                assert differences(row, row["epsilon_claimed"], row["delta"]) == []
                continue
            counts = Counts(row["false_positives"], row["negatives"], row["false_negatives"], row["positives"])
            assert audited == pytest.approx(epsilon_bound(counts, row["delta"], 1 - row["confidence"]), abs=1e-9)
            assert row["runs"] == 2 * (row["negatives"] + row["positives"])
            most = epsilon_opt(row["negatives"], 1 - row["confidence"], row["delta"])
            assert row["epsilon_certifiable"] == pytest.approx(most, abs=1e-9)


def test_verdicts_are_what_the_guide_says():
    """Broken training is refuted, unless the black box of one run looks at it; all else is not."""
    for name in COMMANDS:
        broken = name in ("mechanism-published", "mechanism-shuffled", "clipbkd-no-clipping", "one-run-broken")
        for row in rows(name):
            blind = row.get("canary", {}).get("kind") == "example"
            assert row["verdict"] == ("refuted" if broken and not blind else "consistent"), name


def test_the_figure_has_a_point_for_every_claim():
    for prefixes in PANELS.values():
        points, models = panel(prefixes)
        assert {point.label for point in points} <= set(LABELS.values())
        assert models == sum(row["runs"] for prefix in prefixes for noise in LABELS for row in rows(prefix + noise))
        assert all(math.isfinite(point.audited) for point in points)

"""Studies beside the paper: entries like all others, grouped apart, that print nothing of the paper's."""

import json

import pytest
from tests.paper.toy import Stopped, stopping

from plrvo.cli.main import main
from plrvo.paper.catalog import ENTRIES, find
from plrvo.paper.correlated import BANDS, BY_TURNS, DP_SGD, NOISES, RATES, SETTINGS, TREE
from plrvo.paper.entry import Context, Group, Scale
from plrvo.paper.reproduce import Reproduction
from plrvo.paper.study_correlated import against_sampling

STUDIES = [entry for entry in ENTRIES if entry.group is Group.study]
TRAINED = [entry for entry in STUDIES if entry.needs[Scale.smoke].data]


def test_studies_are_named_as_such_and_print_nothing_of_the_paper():
    assert {entry.name for entry in STUDIES} == {entry.name for entry in ENTRIES if entry.name.startswith("study-")}
    for entry in STUDIES:
        for scale in Scale:
            assert all(value is None for row in entry.rows(scale) for value in row.printed.values())


def test_the_list_shows_groups_apart(capsys):
    assert main(["reproduce", "--list"]) == 0
    shown = capsys.readouterr().out
    titles = ["Tables and figures of the paper", "Comparisons that the paper does not make", "Studies beside the paper"]
    places = [shown.index(title) for title in titles]
    assert places == sorted(places)
    bounds = dict(zip(Group, zip(places, [*places[1:], len(shown)], strict=True), strict=True))
    for entry in ENTRIES:
        start, end = bounds[entry.group]
        assert entry.name in shown[start:end]
    assert main(["reproduce", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["entries"]
    assert [row["group"] for row in listed] == [entry.group for entry in ENTRIES]


@pytest.mark.data
@pytest.mark.parametrize("entry", TRAINED, ids=lambda entry: entry.name)
def test_studies_run_and_go_on_where_they_stopped(entry, data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
    context = Context(Scale.smoke, tmp_path, data_dir)
    with pytest.raises(Stopped):
        Reproduction(stopping(entry, 1), tmp_path, context).run()
    first = json.loads((tmp_path / "reproduction.json").read_text())["rows"]
    found = Reproduction(stopping(entry, 0), tmp_path, context).run()
    assert found["status"] == "finished"
    assert found["rows"][:1] == first
    private = [row for row in found["rows"] if row["epsilon"]["certified"] is not None]
    assert private
    for row in private:
        assert row["epsilon"]["printed"] is None
        assert 0 < row["epsilon"]["lower"] <= row["epsilon"]["certified"]
        assert list((tmp_path / "runs" / row["key"]).rglob("receipt.json"))


def test_mechanisms_of_the_study_have_the_participation_that_they_name():
    setting = SETTINGS[Scale.quick][1]
    assert DP_SGD.recipe(setting, 0.1).sample_rate == setting.batch / setting.size
    assert {mechanism.recipe(setting, 0.1).sample_rate for mechanism in (TREE, BANDS, BY_TURNS)} == {1.0}
    assert {mechanism.recipe(setting, 0.1).steps for mechanism in (TREE, BANDS, BY_TURNS, DP_SGD)} == {150}
    assert BANDS.correlation(setting).participation.steps_per_epoch == 50
    assert (BY_TURNS.correlation(setting).participation.groups, setting.delta < 1 / setting.size) == (8, True)
    rows = find("study-correlated").rows(Scale.quick)
    assert len(rows) == len({row.key for row in rows}) == (3 + 2) * len(RATES)
    assert all(tuple(row.printed) == NOISES for row in rows)


def test_points_are_counted_from_sampling_at_the_same_place():
    def row(mechanism, epsilon, accuracy):
        given = {"task": "mnist", "mechanism": mechanism.shown, "epsilon": epsilon}
        return {"parameters": given, "measured": {"gaussian": accuracy}}

    sampled = [row(DP_SGD, 0.05, 80.0), row(DP_SGD, 0.9, 90.0)]
    told = against_sampling([row(TREE, 0.05, 50.0), row(TREE, 0.9, 91.5)], sampled)
    assert told == "in order, tree (mnist) -30.0, +1.5 points"


def test_certificates_are_tight_before_and_after():
    rows = {row.key: row for row in find("study-tight").rows(Scale.quick)}
    assert len(rows) == 27
    found = rows["laplace-0.1-1.0-50"].measure(Context(Scale.quick, None)).values
    assert 1 < found["certified_over_lower"] < 1.02 < found["moments_over_lower"]

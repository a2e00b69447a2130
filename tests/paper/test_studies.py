"""Studies beside the paper: entries like all others, grouped apart, that print nothing of the paper's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.paper.toy import Stopped, stopping

from plrvo.cli.main import main
from plrvo.designer.batches import ENOUGH_STEPS, proposed
from plrvo.noise import Gaussian, noise_from_dict
from plrvo.paper import study_batches, study_map, study_narrower, study_scattering, study_smollm, study_sst2
from plrvo.paper.catalog import ENTRIES, find
from plrvo.paper.correlated import BANDS, BY_TURNS, DP_SGD, NOISES, RATES, SETTINGS, TREE
from plrvo.paper.entry import Context, Group, Scale
from plrvo.paper.reproduce import Reproduction
from plrvo.paper.study_correlated import against_sampling
from plrvo.tasks.vision.recipes import scattering_defaults

RESULTS = Path(__file__).parents[2] / "results" / "paper"
STUDIES = [entry for entry in ENTRIES if entry.group is Group.study]
# Those whose parts an entry of the paper runs anyway (table-ftrl, figure-sst2) are slow for what they show.
SLOW = ("study-correlated", "study-sst2")
LOOKS_ONLY = ("study-signal",)  # at gradients, for which no run has an epsilon
TRAINED = [
    pytest.param(entry, marks=[pytest.mark.slow] if entry.name in SLOW else [], id=entry.name)
    for entry in STUDIES
    if entry.needs[Scale.smoke].data
]


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


def test_the_list_has_a_line_for_each_entry_and_more_when_asked(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PLRVO_DATA", str(tmp_path))
    assert main(["reproduce", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(named) == sorted(entry.name for entry in ENTRIES)
    assert max(map(len, lines)) <= 80
    (mnist,) = [line for line in lines if line.startswith("  table-cnn-mnist ")]
    assert mnist.split(maxsplit=3)[1:] == ["15", "min", "not here: mnist"]
    (tight,) = [line for line in lines if line.startswith("  study-tight ")]
    assert tight.endswith("ready")
    assert main(["reproduce", "--list", "study-tight"]) == 0
    one = capsys.readouterr().out
    assert main(["reproduce", "--list", "-v"]) == 0
    everything = capsys.readouterr().out
    title = next(entry.title for entry in ENTRIES if entry.name == "study-tight")
    assert title[:40] in one
    assert title[:40] in everything
    assert not any(title[:40] in line for line in lines)
    assert "table-cnn-mnist" not in one


@pytest.mark.data
@pytest.mark.parametrize("entry", TRAINED)
def test_studies_run_and_go_on_where_they_stopped(entry, data_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))  # features are computed, and not found from before
    context = Context(Scale.smoke, tmp_path, data_dir)
    with pytest.raises(Stopped):
        Reproduction(stopping(entry, 1), tmp_path, context).run()
    first = json.loads((tmp_path / "reproduction.json").read_text())["rows"]
    found = Reproduction(stopping(entry, 0), tmp_path, context).run()
    assert found["status"] == "finished"
    assert found["rows"][:1] == first
    private = [row for row in found["rows"] if row["epsilon"]["certified"] is not None]
    assert bool(private) == (entry.name not in LOOKS_ONLY)
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


def test_noise_gets_narrower_by_what_certificates_save():
    rows = {row.key: row for row in find("study-narrower").rows(Scale.quick)}
    found = rows["cnn-1"].measure(Context(Scale.quick, None))
    values, details = found.values, found.details
    assert details["method"]["gamma"] == "profile"
    assert 1.4 < values["gamma_over_gaussian"] < values["gamma_over_gaussian_by_moments"]
    narrow, wide = (noise_from_dict(details[which]["gamma"]) for which in ("noise", "by_moments"))
    assert values["gamma_left"] == pytest.approx((narrow.variance / wide.variance) ** 0.5)
    assert values["gamma"] == pytest.approx(narrow.variance**0.5 / details["workload"]["clip"])
    told = study_narrower.findings(
        [
            {"label": row.label, "parameters": row.parameters, "measured": values | {"gamma_left": left}}
            for left, row in zip((0.7, 0.998), (rows["cnn-1"], rows["mnist-in-order-tree-0.9"]), strict=True)
        ]
    )
    assert "fresh noise in every step Gamma noise of the same certified epsilon is 30% to 30% narrower" in told[0]
    assert "is as wide as by moments alone, to 0.5%, at these budgets" in told[1]


def test_a_gap_is_a_matter_of_proof_only_where_certificates_are_far_from_attacks():
    plain = {"parameters": {"model": "m", "target": None}, "measured": {"not_private": 80.0}}

    def told(*reached):
        values = {"gaussian": 75.0, "gamma": 70.0, "gamma_score": 72.0}
        rows = [
            {
                "parameters": {"model": "m", "target": 1.0 + i},
                "measured": values,
                "epsilon": {"certified": 1, "lower": one},
            }
            for i, one in enumerate(reached)
        ]
        return study_sst2.findings([plain, *rows])[0]

    assert told(0.95, 0.98).endswith(
        "95% to 98% of the certified epsilon of Gamma noise: what is left of the gap is no matter of proof."
    )
    assert told(0.2, 0.98).endswith("where that is below 90% (epsilon 1) noise is wider than it had to be.")


def test_settings_of_the_study_of_noise_are_those_that_were_trained():
    seen = set()
    for compared in study_narrower.settings():
        for entry in compared.entries:
            rows = json.loads((RESULTS / entry / "reproduction.json").read_text())["rows"]
            works = [row["details"]["workload"] for row in rows if "workload" in row["details"]]
            dimensions = [row["details"]["dimension"] for row in rows if "dimension" in row["details"]]
            assert compared.work.dimension in dimensions or not dimensions
            assert any(one | {"clip": compared.work.clip} == compared.work.to_dict() for one in works) or not works
            assert compared.delta in [row["details"].get("delta") for row in rows] or not (works or dimensions)
            seen |= {entry} if works or dimensions else set()
    assert len(seen) >= 7


def test_scattering_runs_and_its_settings_are_those_of_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    entry = find("study-scattering")
    found = Reproduction(entry, tmp_path / "out", Context(Scale.smoke, tmp_path / "out")).run()
    (row,) = found["rows"]
    assert 0 < row["epsilon"]["lower"] <= row["epsilon"]["certified"] <= 3
    assert row["details"]["run_certified"]["gaussian"] <= 3
    for task, examples in study_scattering.EXAMPLES.items():
        for epsilon in study_scattering.EPSILONS:
            recipe, clip = study_scattering.recipe_of(task, examples, epsilon)
            usual = scattering_defaults(task, examples).at(epsilon)
            assert (recipe.sample_rate, recipe.steps, clip) == (usual.sample_rate, usual.steps, usual.clip)
            assert (recipe.learning_rate, recipe.average) == (usual.learning_rate, usual.average)
    assert {row.parameters["task"] for row in entry.rows(Scale.full)} == set(study_scattering.EXAMPLES)
    aims = {(row.parameters["task"], row.parameters["epsilon"]) for row in entry.rows(Scale.full)}
    assert set(study_scattering.AIMS) <= aims
    assert {row.key for row in entry.rows(Scale.quick)} < {row.key for row in entry.rows(Scale.full)}


def test_rows_of_batches_are_those_that_design_compares_and_rules_lose_what_they_lose():
    rows = {row.key: row for row in find("study-batches").rows(Scale.quick)}
    for epochs in study_batches.EPOCHS[Scale.quick]:
        found = study_batches.alternatives(epochs, 60_000)
        mine = [row.parameters for row in rows.values() if row.parameters["epochs"] == epochs]
        assert {one["batch"] for one in mine} == {one.batch for one in found}
        assert {one["steps"] for one in mine} == {one.steps for one in found}

    def row(batch: int, signal: float, accuracy: float) -> dict:
        given = {"task": "mnist", "epochs": 3, "batch": batch, "steps": 1000 // batch}
        return {"label": f"of {batch}", "parameters": given, "measured": {"signal": signal, "accuracy": accuracy}}

    some = [row(100, 100.0, 90.0), row(1, 40.0, 95.0), row(10, 80.0, 97.0)]
    assert study_batches.lost(some, "mnist", study_batches.by_share(0.95)) == 7
    assert study_batches.lost(some, "mnist", study_batches.by_share(0.8)) == 0
    assert study_batches.lost(some, "mnist", study_batches.by_steps(0)) == 7
    assert study_batches.lost(some, "mnist", study_batches.by_steps(1000)) == 2
    told = study_batches.findings(some)
    assert told[0].startswith("of 10 (100 steps, 80 % of the signal) 97.00 %, the best of its group.")


def test_the_rule_for_batches_is_the_best_of_the_study_where_it_was_chosen():
    rows = json.loads((RESULTS / "study-batches" / "reproduction.json").read_text())["rows"]
    chosen = study_batches.by_steps(ENOUGH_STEPS)
    others = [study_batches.by_steps(needed) for needed in study_batches.NEEDED]
    others += [study_batches.by_share(share) for share in study_batches.SHARES]
    assert study_batches.lost(rows, study_batches.CHOSEN_ON, chosen) == min(
        study_batches.lost(rows, study_batches.CHOSEN_ON, rule) for rule in others
    )
    for epochs in study_batches.EPOCHS[Scale.quick]:  # as the command proposes it
        given = [row for row in rows if row["parameters"]["epochs"] == epochs][:8]
        picked = chosen(given)["parameters"]
        assert picked["batch"] == proposed(study_batches.alternatives(epochs, 60_000)).batch


def test_what_others_published_is_drawn_and_an_aim_that_is_missed_is_said():
    def row(task: str, epsilon: float, accuracy: float) -> dict:
        parameters = {"task": task, "epsilon": epsilon, "noise": "gaussian"}
        return {"parameters": parameters, "measured": {"accuracy": accuracy, "spread": 0.1}}

    told = study_scattering.findings([row("mnist", 1.0, 97.6), row("fashion-mnist", 1.0, 87.4)])
    assert "gaussian 97.60 ± 0.10. The aim was 97.5: reached." in told[0]
    assert told[1].startswith("mnist, published by others: 98.7 at 3 (Tramèr and Boneh 2021, scattering, linear)")
    assert told[2].endswith("The aim was 87.5: missed.")
    assert {point.task for point in study_scattering.PUBLISHED} == set(study_scattering.EXAMPLES)
    for accuracy, verdict in (
        (66.41, "ours is 66.4, to a tenth of a point: 67 and 69.3 are above."),
        (67.04, "ours is 67.0, to a tenth of a point: 69.3 is above, 67 is the same."),
        (70.00, "ours is 70.0, to a tenth of a point: 67 and 69.3 are below."),
    ):
        assert study_scattering.findings([row("cifar-10", 3.0, accuracy)])[1].endswith(f"At epsilon 3 {verdict}")


def test_the_map_has_the_errors_of_a_release_and_of_training():
    """One coordinate: Laplace noise of scale 1/epsilon, less what delta gives, and the analytic Gaussian mechanism."""
    rows = {row.key: row for row in find("study-map").rows(Scale.quick)}
    assert len(rows) == len(study_map.places())
    one = rows["dimension-one-release-1"].measure(Context(Scale.quick, None))
    sigma = 3.7304  # Balle and Wang 2018 at epsilon 1, delta 1e-5
    assert one.values["laplace_error"] == pytest.approx(1 / (sigma * (2 / np.pi) ** 0.5), rel=1e-3)
    assert one.values["gamma_deviation"] == pytest.approx(2**0.5 / sigma, rel=5e-3)
    many = rows["dimension-training-100000"].measure(Context(Scale.quick, None)).values
    # In high dimension both noises show the same information (theory, section 10), and the score takes it all; what is
    # more than that is a certificate's gap. Cosines of 40 draws of 100,000 coordinates are within 2 % (4 deviations).
    assert 1 <= many["gamma_deviation"] / 2**0.5 < 1.06
    assert 1 <= many["gamma_error_after_score"] < 1.06
    assert many["gamma_aligned_even"] == pytest.approx(1 / many["gamma_error_after_score"], rel=0.02)


def test_alignment_is_that_of_a_signal_in_gaussian_noise():
    """cos^2 is about C^2/(C^2 + n sigma^2); the mean of 40 draws of 2,000 coordinates is within 2 % (4 deviations)."""
    found = study_map.aligned(Gaussian(0.02), "heavy", 1.0, 2000, np.random.default_rng(1))
    assert found == pytest.approx((1 / (1 + 2000 * 0.02**2)) ** 0.5, rel=0.02)


def test_an_aim_that_is_missed_by_a_hair_is_missed():
    def row(target, bleu):
        return {"label": "a", "parameters": {"target": target}, "measured": {"bleu": bleu}, "details": {"loss": 1.5}}

    on_e2e, on_webnlg = (entry.findings for entry in study_smollm.ENTRIES)
    assert "is missed: a has 39.97" in on_e2e([row(None, 50.0), row(8.0, 39.97), row(3.0, 45.0)])[1]
    assert "is reached: a has 40.00" in on_e2e([row(8.0, 40.0)])[1]
    assert not any("aim" in said for said in on_webnlg([row(8.0, 40.0)]))


def test_metrics_are_told_before_and_after_and_a_fall_is_explained_by_lengths_that_are_shown():
    def row(noise, target, nist, text):
        values = {"bleu": 40.0, "nist": nist, "meteor": 0.2, "rouge_l": 0.4, "cider": 0.3}
        details = {"loss": 1.5, "samples": [{"table": "a", "text": text}]}
        return {
            "label": noise,
            "parameters": {"target": target, "noise": noise},
            "measured": values,
            "details": details,
        }

    on_e2e = study_smollm.ENTRIES[0].findings
    before, short = row("untrained", None, 3.5, "a b c d"), row("gaussian", 8.0, 1.5, "a b")
    told = on_e2e([before, short])
    assert told[2].startswith("Untrained -> trained (gaussian): BLEU, % 40 -> 40; NIST 3.5 -> 1.5;")
    assert told[3].endswith("have 2 words, untrained 4.")
    for other in (row("gaussian", 8.0, 4.0, "a b"), row("gaussian", 8.0, 1.5, "a b c d e")):
        assert not any(said.startswith("NIST falls") for said in on_e2e([before, other]))


def test_settings_found_on_e2e_are_used_on_webnlg_as_they_are():
    one, other = (study_smollm.setting(task, Scale.full) for task in ("e2e", "webnlg"))
    assert other.recipe == replace(one.recipe, task="webnlg", sample_rate=128 / 18_102)
    assert (one.pairs, other.pairs) == (42_061, 18_102)
    assert other.delta == one.delta == 1e-5

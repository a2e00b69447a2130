"""The figures of QNLI and SST-2: what the paper prints, its settings, and a point with every noise."""

import pytest

from plrvo.paper.catalog import find
from plrvo.paper.classification import CHECKPOINTS, NOISES, findings, settings_of
from plrvo.paper.entry import Context, Scale
from plrvo.paper.flags import Flag
from plrvo.paper.reproduce import Reproduction


def test_golden_cells():
    rows = {row.key: row for row in find("figure-sst2").rows(Scale.full)}
    headline = rows["roberta-large-epsilon-0.2"].printed
    assert (headline["gaussian"], headline["gamma"]) == (50.25, 92.20)
    assert rows["roberta-large-not-private"].printed == {"not_private": 96.4}
    printed = [value for row in rows.values() for value in row.printed.values() if value is not None]
    assert len(printed) == 6  # four models without privacy, and the headline: a figure is no table
    qnli = {row.key: row for row in find("figure-qnli").rows(Scale.full)}
    accuracies = [qnli[f"{name.lower()}-not-private"].printed["not_private"] for name in CHECKPOINTS]
    assert accuracies == [90.5, 92.7, 92.8, 94.7]


@pytest.mark.parametrize(("task", "steps", "examples"), [("sst2", 198, 67_349), ("qnli", 307, 104_743)])
def test_the_papers_settings_at_full_scale(task, steps, examples):
    settings = settings_of(task, Scale.full)
    assert [setting.recipe.model for setting in settings] == list(CHECKPOINTS.values())
    for setting in settings:
        recipe = setting.recipe
        assert (recipe.steps, recipe.learning_rate, recipe.optimizer, recipe.schedule) == (
            steps,
            5e-4,
            "adamw",
            "linear",
        )
        assert recipe.sample_rate * examples == pytest.approx(1024)
        assert recipe.options == {"trainable": "all", "max_length": 256}
        assert setting.delta == 1 / (2 * examples)


def test_stand_ins_are_named():
    qnli, sst2 = find("figure-qnli"), find("figure-sst2")
    assert "SNLI" in qnli.stand_in[Scale.quick]
    assert "trained on" in qnli.stand_in[Scale.quick]
    assert "MiniLM" in sst2.stand_in[Scale.quick]
    assert "RoBERTa-large" in sst2.stand_in[Scale.quick]
    # A task with other classes has no printed value beside it.
    assert all(value is None for row in qnli.rows(Scale.quick) for value in row.printed.values())
    assert qnli.needs[Scale.quick].data == ("snli",)
    assert qnli.needs[Scale.full].data == ("qnli",)


@pytest.mark.data
@pytest.mark.parametrize("name", ["figure-sst2", "figure-qnli"])
def test_smoke(data_dir, tmp_path, monkeypatch, name):
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
    found = Reproduction(find(name), tmp_path, Context(Scale.smoke, tmp_path, data_dir)).run()
    assert found["status"] == "finished"
    plain, point = found["rows"]
    assert 0 < plain["measured"]["not_private"] < 100
    assert set(point["measured"]) == set(NOISES)
    certified = point["details"]["run_certified"]
    assert all(2.9 < value <= 3.0 for value in certified.values())
    assert certified.keys() == NOISES.keys()
    assert point["details"]["noise"]["gamma"] == point["details"]["noise"]["gamma_score"]
    # l1 clipping is the classical mechanism, whose worst case is one coordinate.
    assert point["details"]["noise"]["laplace_l1"]["b"] != point["details"]["noise"]["laplace"]["b"]
    assert (tmp_path / "runs" / point["key"] / "laplace_l1-0" / "receipt.json").exists()


def test_findings_say_what_the_rows_say():
    def point(target, *flags, **accuracies):
        about = {"model": "MiniLM, head", "data": "sst2", "target": target}
        return {
            "label": f"epsilon {target}",
            "parameters": about,
            "measured": accuracies,
            "flags": dict.fromkeys(flags, ""),
        }

    values = {"laplace": 70.0, "gamma_score": 72.0}
    told = findings(
        "sst2",
        [
            point(None, not_private=81.0),
            point(0.2, gaussian=75.0, gamma=71.0, laplace_l1=52.0, **values),
            point(3.0, Flag.refuted, gaussian=70.0, gamma=71.5, laplace_l1=60.0, **values),
        ],
    )
    assert "Gamma noise is ahead of Gaussian noise in 1 of 2 rows; accuracies differ by -4.0 to +1.5 points" in told[0]
    assert "around 3 to 7 points" in told[0]
    assert "a gap of -4.0 points" in told[3]
    assert "+41.95 points" in told[3]
    assert "reaches 52.0 to 60.0 %" in told[4]
    assert told[5].startswith("In 1 of 2 rows")

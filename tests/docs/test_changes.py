"""What the pages say of noise by moments and of today's is read from the rows."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from docs.figures.changes import BY_MOMENTS, NEGLIGIBLE, RESULTS, TODAY, Changes, _budget, multipliers

from plrvo.noise import GammaPLRV, Laplace
from plrvo.paper.document import sealed

NOW, BEFORE = Laplace(0.5).to_dict(), Laplace(0.8).to_dict()


def study_row(epsilon: float) -> dict:
    wide, narrow, gaussian = 2**0.5 * 0.8, 2**0.5 * 0.5, 0.4
    measured = {"gaussian": gaussian}
    for kind in ("laplace", "gamma"):
        measured |= {f"{kind}_by_moments": wide, kind: narrow, f"{kind}_left": narrow / wide}
        measured |= {f"{kind}_over_gaussian_by_moments": wide / gaussian, f"{kind}_over_gaussian": narrow / gaussian}
    return row_of(f"a-{epsilon:g}", {"entries": ["fair-a"], "setting": "A", "epsilon": epsilon}, measured, {})


def row_of(key: str, parameters: dict, measured: dict, details: dict) -> dict:
    return {
        "key": key,
        "label": key,
        "parameters": parameters,
        "printed": {},
        "measured": measured,
        "epsilon": {},
        "flags": {},
        "details": details,
    }


def trained(key: str, noise: dict | None, accuracy: float, clip: float = 1.0) -> dict:
    kind, _, epsilon = key.partition("-")
    details = {"spread": {kind: 0.25}, "workload": {"clip": clip}} | ({"noise": {kind: noise}} if noise else {})
    return row_of(key, {"noise": kind, "epsilon": float(epsilon)}, {"accuracy": accuracy}, details)


def write(results: Path, place: str, rows: list[dict]) -> None:
    folder = results / place
    folder.mkdir(parents=True)
    content = {"name": folder.name, "scale": "quick", "status": "finished", "rows": rows, "columns": []}
    (folder / "reproduction.json").write_text(json.dumps(sealed(content)))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write(tmp_path, "paper/study-narrower", [study_row(1.0), study_row(3.0)])
    old = [trained("gaussian-1", None, 90.0), trained("laplace-1", None, 80.0), trained("laplace-3", BEFORE, 85.0)]
    write(tmp_path, "moments/fair-a", old)
    write(tmp_path, "paper/fair-a", [old[0], trained("laplace-1", NOW, 84.0), old[2]])
    return tmp_path


def test_rows_are_told_apart_by_their_noise(results: Path) -> None:
    changes = Changes(results)
    assert changes.states("fair-a") == {"laplace-1": True, "laplace-3": False}
    said = changes.note("fair-a")
    assert "1 of 2 rows with other noise than Gaussian" in said
    assert "than Gaussian (laplace-3)." in said
    assert "38 % narrower" in said


def test_noise_is_compared_in_units_of_the_clip(results: Path) -> None:
    changes = Changes(results)
    scaled = Laplace(0.05).to_dict()
    assert changes.trained_with("fair-a", trained("laplace-1", scaled, 84.0, clip=0.1))
    assert not changes.trained_with("fair-a", trained("laplace-1", scaled, 84.0))
    assert not changes.trained_with("fair-a", trained("laplace-2", NOW, 84.0)), "of no budget of the study"
    assert not changes.trained_with("fair-a", trained("gamma-1", GammaPLRV(10.0, 0.25).to_dict(), 84.0))


def test_the_page_shows_noise_and_accuracy_before_and_after(results: Path) -> None:
    page = "\n".join(Changes(results).lines())
    assert "| A | 1, 3 | 1.13 → **0.707**, 1.13 → **0.707** | 2.83 → **1.77**, 2.83 → **1.77** |" in page
    assert "| `fair-a`, laplace-1 | Laplace | 80.0 ± 0.2 % | 84.0 ± 0.2 % |" in page
    assert "laplace-3 |" not in page
    assert "noise by moments (number of rows): `fair-a` (1)." in page


def test_models_that_write_are_told_by_their_loss(tmp_path: Path) -> None:
    row = row_of("gamma-1", {"noise": "Gamma (PLRV-O)", "target": 1.0}, {"bleu": 3.0}, {"loss": 4.5, "noise": NOW})
    write(tmp_path, "paper/study-narrower", [study_row(1.0)])
    write(tmp_path, "paper/fair-a", [row])
    write(tmp_path, "moments/fair-a", [row | {"details": {"loss": 4.75}}])
    page = "\n".join(Changes(tmp_path).lines())
    assert "| `fair-a`, gamma-1 | Gamma (PLRV-O) | loss 4.75 | loss 4.50 |" in page
    assert "Not trained again" not in page


def test_without_a_study_nothing_is_said(tmp_path: Path) -> None:
    assert Changes(tmp_path).lines() == []
    assert Changes(tmp_path).note("fair-a") == ""


def test_rows_are_kept_where_they_were_trained_again() -> None:
    for path in (RESULTS / "moments").glob("*/reproduction.json"):
        kept, today = (
            json.loads(file.read_text())["rows"] for file in (path, RESULTS / "paper" / path.parent.name / path.name)
        )
        assert [row["key"] for row in kept] == [row["key"] for row in today]
        assert not any(Changes().trained_with(path.parent.name, row) for row in kept)


def _has_enough(changes: Changes, entry: str, row: Any) -> bool:
    asked = [each["measured"] for each in changes.of(entry) if each["parameters"]["epsilon"] == _budget(row)]
    return all(
        any(value >= each[kind] * (1 - 1e-4) and math.isclose(value, each[kind], rel_tol=NEGLIGIBLE) for each in asked)
        for kind, value in multipliers(row)
    )


def test_every_committed_row_has_the_noise_of_the_study() -> None:
    """Rows were fitted by the code of their time, the study computes both noises anew: no row has a third one.

    Certificates become tighter from time to time: a row may have a little more noise than today's, and never less.
    """
    changes, seen = Changes(), set()
    for place in ("moments", "paper"):
        for entry in {name for row in changes.study for name in row["parameters"]["entries"]}:
            path = RESULTS / place / entry / "reproduction.json"
            for row in json.loads(path.read_text())["rows"] if path.exists() else ():
                if list(multipliers(row)):
                    old = changes.trained_with(entry, row, BY_MOMENTS, 1e-4)
                    new = changes.trained_with(entry, row, TODAY, NEGLIGIBLE) and _has_enough(changes, entry, row)
                    assert old or new, (entry, row["key"])
                    seen.add(entry)
    assert {"study-sst2", "study-e2e", "study-correlated", "table-ftrl", "figure-sst2", "figure-qnli"} <= seen

"""The page says what the files say, escapes what it did not write, and asks for nothing."""

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate
from tests.report.samples import HOSTILE, MECHANISM, changed_receipt, copied, own_loop, page_of, reproduction

import plrvo
from plrvo import appearance
from plrvo.accounting import attacker
from plrvo.accounting.attacker import most_often_right
from plrvo.explore.answers import certify, quick
from plrvo.explore.fragments import answer
from plrvo.explore.question import Question
from plrvo.report import coverage
from plrvo.report.charts import Dot, DotRow, Kind, Line, dot_chart, line_chart
from plrvo.report.densities import densities
from plrvo.report.figures import measure_charts, trade_charts
from plrvo.report.loading import read_run
from plrvo.report.page import make_page


class Elements(HTMLParser):
    """Every tag with its attributes, and the text without tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def quantities(self, name: str) -> set[str]:
        return {a["data-exact"] for _, a in self.found if a.get("data-quantity") == name}


def test_numbers_on_the_page_are_those_of_the_receipt(gamma_run):
    page, receipt = Elements(page_of(gamma_run)), json.loads((gamma_run / "receipt.json").read_text())
    for name in ("certified", "lower", "published"):
        assert page.quantities(name) == {repr(receipt["epsilon"][name])}
    assert page.quantities("delta") == {repr(receipt["delta"])}
    assert page.quantities("metric-accuracy") == {repr(receipt["run"]["metrics"]["accuracy"])}
    assert json.dumps(receipt, indent=2, ensure_ascii=False) in page.text


def test_metrics_of_a_loop_of_ones_own_are_shown_as_its_authors_word(tmp_path):
    said = {"metrics": {"accuracy": 0.7, "note": "good", "f1": True}, "weights_of_step": 0}
    folder = own_loop(tmp_path / "own", said)
    assert plrvo.verify(folder) == []
    page = Elements(page_of(folder))
    assert page.quantities("metric-accuracy") == {"0.7"}
    assert not page.quantities("metric-f1")
    assert "metrics as the receipt's author says" in page.text
    assert "stand in the receipt alone" in page.text
    assert "weights of step 0" in page.text


def test_a_history_in_a_receipt_is_drawn_without_the_epsilons_that_nobody_recomputed(tmp_path):
    rows = [
        {"step": n, "accuracy": n / 4, "epsilon_certified": 0.01, "epsilon": 0.02, "my_epsilon": 0.03}
        for n in (1, 2, 3)
    ]
    page = Elements(page_of(own_loop(tmp_path / "own", {"history": rows})))
    assert "Test accuracy over steps" in page.text
    assert "Certified epsilon over steps" not in page.text
    assert not page.quantities("metric-epsilon") | page.quantities("metric-my_epsilon")
    assert page.quantities("metric-accuracy") == {"0.75"}


@pytest.mark.parametrize("said", [{"accuracy": 70.0}, {"loss": HOSTILE}, [], "0.7", 0.7, None, {"step": 3}])
def test_what_an_author_says_in_another_form_breaks_no_page(tmp_path, said):
    folder = own_loop(tmp_path / "own", {"metrics": said, "history": said})
    run = read_run(folder)
    assert run.metric is None
    assert HOSTILE not in page_of(folder)


def test_a_refuted_formula_a_seed_and_an_audit_are_told(gamma_run):
    text = Elements(page_of(gamma_run)).text
    assert "Published, refuted" in text
    assert "Certified, as long as nobody knows the seed:" in text
    assert text.index("NOT PRIVATE: the noise came from a fixed seed") < text.index("Certified, as long as")
    assert "An attack reached epsilon" in text
    assert "at most" in text
    assert "an attacker provably reaches at least" in text
    assert "the paper's formula says" in text


def test_a_receipt_that_does_not_verify_is_told_before_everything_else(gamma_run, tmp_path):
    folder = copied(gamma_run, tmp_path / "run")
    changed_receipt(folder, lambda receipt: receipt["epsilon"].update(certified=0.5))
    text = Elements(page_of(folder)).text
    assert "It claims, but this does not verify" in text
    assert "Certified" not in text[: text.index("at most")]
    assert "Every epsilon of the receipt was recomputed" not in text
    assert text.index("Does not verify.") < text.index("at most")


def test_runs_that_promise_less_say_so(plain_run, unfinished_run):
    assert "Not private: nothing is certified." in Elements(page_of(plain_run)).text
    assert "Stopped after 6 of 40 steps" in Elements(page_of(unfinished_run)).text


def test_a_reproduction_shows_every_value_and_counts_what_is_refuted(table):
    page, rows = Elements(page_of(table)), json.loads((table / "reproduction.json").read_text())["rows"]
    for name in ("printed", "published", "certified", "lower"):
        assert page.quantities(name) == {repr(row["epsilon"][name]) for row in rows}
    for name in ("gaussian", "gamma", "laplace", "gamma_score"):
        values = {part.get(name) for row in rows for part in (row["printed"], row["measured"])} - {None}
        assert page.quantities(name) == {repr(value) for value in values}
    refuted = sum(row["epsilon"]["printed"] < row["epsilon"]["lower"] for row in rows)
    proved = sum(row["epsilon"]["printed"] >= row["epsilon"]["certified"] for row in rows)
    assert refuted > 0
    remarked = sum(bool(row["flags"]) for row in rows if row["epsilon"]["printed"] >= row["epsilon"]["certified"])
    told = f"{proved} proved ({remarked} of them only with the remark in the table), {refuted} refuted."
    assert f"Of 9 printed epsilons: {told}" in page.text
    assert page.text.count("holds, see remark") == remarked == 4
    assert all(remark in page.text for row in rows for remark in row["flags"].values())


def test_measures_of_different_sizes_do_not_share_an_axis(table, tmp_path):
    together = [chart.title for chart in measure_charts(read_run(table))]
    assert together == ["Printed and measured"]
    rows = json.loads((table / "reproduction.json").read_text())["rows"]
    for row in rows:
        row |= {"printed": {}, "measured": {"accuracy": 90.0, "seconds": 1200.0, "nothing": None}}
    apart = measure_charts(read_run(reproduction(tmp_path / "table", rows=rows)))
    assert [chart.x_label for chart in apart] == ["accuracy", "seconds"]


def test_the_commands_name_the_receipt_that_was_read(gamma_run, tmp_path):
    folder = copied(gamma_run, tmp_path / "run")
    (folder / "receipt.json").rename(folder / "good.json")
    page = page_of(folder / "good.json")
    assert "plrvo verify run/good.json" in page


def test_the_commands_work_where_the_page_was_made(gamma_run, table, tmp_path, monkeypatch):
    copied(gamma_run, tmp_path / "all" / "runs" / "gamma")
    copied(table, tmp_path / "all" / "table")
    copied(gamma_run, tmp_path / "all" / "table" / "runs" / "gamma")
    monkeypatch.chdir(tmp_path)
    page = page_of(Path("all/runs/gamma"), Path("all/table"))
    assert "plrvo verify all/runs/gamma/receipt.json<" in page
    assert "plrvo audit mechanism --receipt all/runs/gamma/receipt.json<" in page
    assert "plrvo report all/table<" in page


@pytest.mark.parametrize("metrics", ["", '{"step": 2}\n'])
def test_a_run_without_privacy_or_anything_to_draw_has_a_page(tmp_path, metrics):
    (tmp_path / "metrics.jsonl").write_text(metrics)
    assert "Not private: nothing is certified." in page_of(tmp_path)


def test_nothing_from_a_file_becomes_a_tag(gamma_run, table, tmp_path):
    folder = copied(gamma_run, tmp_path / HOSTILE.replace("/", ":"))

    def poison(receipt):
        receipt["task"] |= {"name": HOSTILE, "model": HOSTILE}
        receipt |= {"adjacency": HOSTILE, "sampler": HOSTILE, "arithmetic": HOSTILE}
        receipt["run"]["randomness"] = HOSTILE
        receipt["plan"]["noise"][HOSTILE] = HOSTILE

    changed_receipt(folder, poison)
    row = json.loads((table / "reproduction.json").read_text())["rows"][0]
    row |= {
        "label": HOSTILE,
        "flags": {"differs": HOSTILE},
        "parameters": {HOSTILE: HOSTILE},
        "measured": {HOSTILE: 1.0},
    }
    hostile = dict.fromkeys(("name", "title", "paper", "scale", "status", "stand_in"), HOSTILE)
    other = reproduction(tmp_path / "table", rows=[row], findings=[HOSTILE], **hostile)
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps(json.loads(MECHANISM.read_text()) | {"data": HOSTILE, "noise": {"noise": HOSTILE}}))
    safe, poisoned = (Elements(page_of(*paths)) for paths in ((gamma_run, table, MECHANISM), (folder, other, audit)))
    assert [tag for tag, _ in poisoned.found].count("script") == [tag for tag, _ in safe.found].count("script") == 1
    assert "img" not in {tag for tag, _ in poisoned.found}
    assert not any(name.startswith("on") for _, attributes in poisoned.found for name in attributes)
    assert HOSTILE in poisoned.text


def test_a_page_without_any_address_forbids_every_request(gamma_run, table):
    page = Elements(page_of(gamma_run, table, MECHANISM))
    policy = next(a["content"] for tag, a in page.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag, attributes in page.found:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form", "image", "use")
        assert "src" not in attributes
        assert "style" not in attributes  # the policy forbids them
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\(|@import|//[a-z]", page_of(gamma_run).split("</style>")[0].split("<style>")[1])


def test_ids_are_unique_and_every_table_has_a_caption(gamma_run, gaussian_run, table):
    page = Elements(page_of(gamma_run, gaussian_run, table))
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    tags = [tag for tag, _ in page.found]
    assert tags.count("table") == tags.count("caption")
    plots = [attributes for tag, attributes in page.found if tag == "svg" and attributes.get("class") == "plot"]
    assert all(reference in ids for plot in plots for reference in plot["aria-labelledby"].split())


def test_several_runs_are_compared(gamma_run, gaussian_run, plain_run):
    text = Elements(page_of(gamma_run, gaussian_run, plain_run)).text
    assert "The runs beside each other" in text
    assert "beside each other" not in Elements(page_of(gamma_run, MECHANISM)).text


def test_the_summary_of_several_runs_says_what_belongs_beside_an_epsilon(
    gamma_run, gaussian_run, unfinished_run, table
):
    page = Elements(page_of(gamma_run, gaussian_run, unfinished_run, table))
    summary = page.text[page.text.index("The runs beside each other") : page.text.index("What was certified, and")]
    assert "verified, but seeded: not private" in summary
    assert "fixed seed: not private; floating point" in summary
    assert "6 of 40 steps" in summary
    assert "digits, 1,442 examples; logistic, 650 parameters; clip 1" in summary
    assert "stand-in: one seed instead of five trials" in page.text
    day = datetime.fromtimestamp((gaussian_run / "receipt.json").stat().st_mtime, UTC).strftime("%Y-%m-%d")
    assert day in summary


def test_accuracy_stands_against_certified_epsilon_for_runs_that_verify(gamma_run, gaussian_run, plain_run, tmp_path):
    doubtful = copied(gaussian_run, tmp_path / "doubtful")
    changed_receipt(doubtful, lambda receipt: receipt["epsilon"].update(certified=0.01))
    runs = [read_run(path) for path in (gamma_run, gaussian_run, plain_run, doubtful)]
    (chart,) = trade_charts(runs)
    assert chart.title == "Test accuracy against certified epsilon"
    told = [(one.label, point.value) for one in chart.series for point in one.points]
    assert told == [(f"{run.kind_of_noise} noise", run.history[-1]["accuracy"]) for run in runs[:2]]
    assert [one.style for one in chart.series] == [appearance.GAMMA.style, appearance.GAUSSIAN.style]
    assert not trade_charts(runs[:1])


def test_a_hundred_runs_are_one_page_that_opens_run_by_run(gaussian_run):
    run = read_run(gaussian_run)
    page = Elements(make_page([replace(run, name=f"run {i}") for i in range(100)]).decode())
    tags = [(tag, attributes.get("class")) for tag, attributes in page.found]
    assert tags.count(("details", "folded")) == 100
    assert ("nav", None) not in tags
    links = [attributes["href"] for tag, attributes in page.found if tag == "a"]
    ids = {attributes.get("id") for _, attributes in page.found}
    assert len(links) == 100
    assert {link.removeprefix("#") for link in links} <= ids
    assert page.text.index("Test accuracy against certified epsilon") < page.text.index("run 0")
    assert page.text.count("gaussian noise") > 100


@pytest.mark.parametrize(
    "noise", [plrvo.Laplace(0.4), plrvo.GammaPLRV(k=3.0, theta=1.0), plrvo.GammaPLRV(k=50.0, theta=0.05, shared=True)]
)
def test_both_densities_are_those_of_noises_with_the_same_certified_epsilon(noise):
    work = plrvo.Workload(sample_rate=0.05, steps=30, clip=0.5, dimension=40)
    plan = plrvo.Plan.certify(noise, work, 1e-5)
    found = densities(plan)
    sigma = found.gaussian_size * work.clip * math.sqrt(math.pi / 2)
    same = plrvo.epsilon(plrvo.Gaussian(sigma), work, 1e-5).certified
    assert plan.bracket.certified * (1 - 1e-3) < same <= plan.bracket.certified * (1 + 1e-9)
    for curve, size in ((found.noise, found.size), (found.gaussian, found.gaussian_size)):
        x, y = np.array(curve).T
        mass = integrate.trapezoid(y, x)  # all but one per cent a side at most; the peak of a Laplace density is sharp
        assert 0.96 < mass < 1.01
        assert integrate.trapezoid(np.abs(x) * y, x) < size * 1.01


def test_gaussian_noise_is_not_compared_with_itself(gaussian_run):
    assert densities(read_run(gaussian_run).receipt.plan).gaussian is None


def _right(text: str) -> float:
    return float(re.search(r"right in at most ([0-9.]+) % of cases", text)[1])


def test_the_share_of_right_guesses_is_that_of_the_explorer(gaussian_run):
    """For the same noise and workload, and far less than the certified pair alone would say."""
    receipt = read_run(gaussian_run).receipt
    (noise, work) = receipt.ledger.entries[0]
    link = f"width={noise.sigma / work.clip!r}&sample_rate={work.sample_rate!r}&steps={work.steps}"
    question = Question.read(f"{link}&clip={work.clip!r}&dimension={work.dimension}&delta={receipt.delta!r}")
    explored = _right(answer(question, quick(question), certify(question)))
    assert _right(coverage.meaning(receipt)) == explored
    assert explored < 100 * most_often_right([(receipt.bracket.certified, receipt.delta)]) - 10


def test_where_moments_say_nothing_guesses_are_bounded_by_the_certified_pair(gaussian_run, monkeypatch):
    """A receipt that does not verify, and more kinds of step than are quick."""
    receipt = read_run(gaussian_run).receipt
    by_pair = 100 * most_often_right([(receipt.bracket.certified, receipt.delta)])
    doubtful = replace(receipt, differences=("something",))
    assert by_pair <= _right(coverage.meaning(doubtful)) <= by_pair + 0.1
    monkeypatch.setattr(attacker, "_ENTRIES", 0)
    assert coverage.meaning(receipt) == coverage.meaning(doubtful)


def test_epsilons_of_very_different_sizes_stand_on_a_logarithmic_axis():
    def places(values):
        row = DotRow("row", [Dot("a", value, "") for value in values])
        chart = dot_chart("", "", "epsilon", {"a": Kind(0)}, [row])
        return chart.x_label, [point.x for point in chart.series[0].points], chart.x_ticks

    label, x, ticks = places([0.01, 0.1, 1.0, 0.0])
    assert label == "epsilon, logarithmic"
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.02)
    assert x[3] < x[0]
    for tick in ticks:
        assert x[0] + math.log10(float(tick.label) / 0.01) * (x[1] - x[0]) == pytest.approx(tick.at, abs=0.05)
    label, x, _ = places([1.0, 2.0, 3.0])
    assert label == "epsilon"
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.02)


@pytest.mark.parametrize(
    "values", [[0.0], [5.0], [-3.0, 4.0], [1e-300, 2e-300], [1e99, -1e99], [1.0, 1.0 + 1e-15], [0.0, 1e100]]
)
def test_every_value_has_a_place_on_the_paper(values):
    for from_zero in (True, False):
        lines = [Line("a", list(enumerate(values)))]
        chart = line_chart("", "", "x", "y", lines, tell_x=str, tell_y=str, from_zero=from_zero)
        row = DotRow("row", [Dot("a", value, "") for value in values])
        dots = dot_chart("", "", "x", {"a": Kind(0)}, [row], from_zero=from_zero)
        for drawn in (chart, dots):
            for point in drawn.series[0].points:
                assert -0.01 <= point.x <= drawn.width
                assert -0.01 <= point.y <= drawn.height
            assert all(0 <= tick.at <= max(drawn.width, drawn.height) for tick in (*drawn.x_ticks, *drawn.y_ticks))
            assert len(drawn.x_ticks) <= 12
        assert len(dots.x_ticks) >= 1


def test_delta_stands_beside_certified_and_published_only_where_a_run_has_it(gamma_run, gaussian_run, plain_run):
    def columns(*runs):
        table = page_of(*runs).split('<table class="runs">')[1].split("</table>")[0]
        names = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', table)
        assert {row.count("<td") + 1 for row in table.split("<tbody>")[1].split("<tr>")[1:]} == {len(names)}
        return names

    assert columns(gaussian_run, gamma_run)[:3] == ["run", "certified: at most", "delta"]
    assert "published" in columns(gaussian_run, gamma_run)
    without = read_run(gaussian_run).receipt.bracket.published is None
    assert ("published" not in columns(gaussian_run, plain_run)) is without


def test_a_receipt_of_ones_own_loop_has_a_name_and_no_heading_over_nothing(gaussian_run, tmp_path):
    """Without metrics nothing was learned that the page could show; `data` names a task that has no name."""
    run = read_run(gaussian_run)
    task = {"data": "my table", "model": "linear"}
    receipt = replace(run.receipt, document={**run.receipt.document, "task": task})
    page = make_page([replace(run, history=(), receipt=receipt)]).decode()
    assert "my table, linear" in page
    assert "a task without a name" not in page
    assert "What was learned" not in page
    assert "<h3>The noise</h3>" in page
    odd = replace(receipt, document={**receipt.document, "task": {"data": 3}})
    assert odd.task == "a task without a name"

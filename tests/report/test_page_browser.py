"""The page in a real browser: it renders, tells the receipt's numbers, answers hover and keys, and asks for nothing."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.browser import PATIENCE
from tests.budget.accounts import account, plan
from tests.report.samples import CLIPBKD, HOSTILE, MECHANISM, changed_receipt, copied

from plrvo.report.accounts import read_account
from plrvo.report.loading import read_run
from plrvo.report.page import make_page

# Every piece of text that is shown, with its colour and the colours behind it, innermost first.
TEXTS = """() => [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() &&
    !['SCRIPT', 'STYLE', 'TITLE', 'DESC'].includes(e.tagName.toUpperCase()) &&
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())).map(e => {
  const behind = [];
  for (let p = e; p; p = p.parentElement) behind.push(getComputedStyle(p).backgroundColor);
  const style = getComputedStyle(e);
  return [e.textContent.trim().slice(0, 60), e instanceof SVGElement ? style.fill : style.color, behind];
})"""


@contextmanager
def opened(browser: Any, file: Path, width: int = 1000, scheme: str = "light") -> Iterator[Any]:
    """The page, without a network; afterwards nothing may have gone wrong and nothing may have been asked for."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
    context.set_default_timeout(PATIENCE)
    try:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        yield page
        page.wait_for_timeout(50)
        assert said == []
        assert asked == [file.as_uri()]
    finally:
        context.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory, gamma_run, gaussian_run, plain_run, unfinished_run, table) -> dict[str, Path]:
    """One run, a reproduction, everything at once, and a hostile receipt that does not verify."""
    folder = tmp_path_factory.mktemp("pages")
    hostile = copied(gamma_run, folder / "hostile")
    changed_receipt(hostile, lambda receipt: receipt["task"].update(name=HOSTILE))
    about = {
        "run": [gamma_run],
        "table": [table],
        "mixed": [gamma_run, gaussian_run, plain_run, unfinished_run, table, MECHANISM, CLIPBKD],
        "hostile": [hostile, plain_run],
    }
    for name, runs in about.items():
        (folder / f"{name}.html").write_bytes(make_page([read_run(run) for run in runs]))
    made = account(folder, name=HOSTILE[:190])
    made.reserve(plan(), "settled").settle(0)
    made.reserve(plan(), HOSTILE[:190]).let_go()
    run = read_run(gaussian_run)
    (folder / "account.html").write_bytes(make_page([read_account(made, [run]), run]))
    return {name: folder / f"{name}.html" for name in (*about, "account")}


def quantities(page: Any, name: str) -> list[tuple[float, float]]:
    """What is visible, as a number, and what is exact."""
    found = page.eval_on_selector_all(
        f"[data-quantity='{name}']", "all => all.map(e => [e.checkVisibility(), e.textContent, e.dataset.exact])"
    )
    assert found
    assert all(visible for visible, _, _ in found)
    return [(float(text), float(exact)) for _, text, exact in found]


def test_a_run_renders_with_the_numbers_of_its_receipt(browser, pages, gamma_run):
    receipt = json.loads((gamma_run / "receipt.json").read_text())
    with opened(browser, pages["run"]) as page:
        headline = page.locator(".headline")
        assert headline.is_visible()
        assert headline.inner_text().startswith("Certified, as long as nobody knows the seed: epsilon is at most")
        plots = page.locator("svg.plot")
        assert plots.count() == 4  # bracket, accuracy, epsilon, noise
        for i in range(plots.count()):
            box = plots.nth(i).bounding_box()
            assert box["width"] > 300
            assert box["height"] > 50
        for name, direction in (("certified", 1), ("lower", -1)):
            for shown, exact in quantities(page, name):
                assert exact == receipt["epsilon"][name]
                assert 0 <= direction * (shown - exact) <= 2e-3 * exact
        for shown, exact in quantities(page, "published"):
            assert exact == receipt["epsilon"]["published"]
            assert shown == pytest.approx(exact, rel=1e-3)
        page.locator("summary", has_text="receipt.json").click()
        assert json.loads(page.locator("details.document pre").inner_text()) == receipt


def test_hovering_and_arrow_keys_tell_the_values(browser, pages, gamma_run):
    history = read_run(gamma_run).history
    with opened(browser, pages["run"]) as page:
        tip = page.locator("#tip")
        plot = page.locator("figure.chart", has_text="Test accuracy over steps").locator(".plot")
        plot.scroll_into_view_if_needed()
        assert not tip.is_visible()
        points = plot.locator("[data-tip]")
        assert points.count() == len(history)
        for i in (0, len(history) - 1):
            box = points.nth(i).bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + box["height"] / 2 - 2)
            assert tip.inner_text() == f"{100 * history[i]['accuracy']:.2f} %\nstep {history[i]['step']:g}"
            assert float(points.nth(i).get_attribute("data-exact")) == history[i]["accuracy"]
        page.mouse.move(1, 1)
        assert not tip.is_visible()
        plot.focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert tip.inner_text() == f"{100 * history[1]['accuracy']:.2f} %\nstep {history[1]['step']:g}"
        page.keyboard.press("Escape")
        assert not tip.is_visible()


def test_every_chart_can_be_reached_by_the_tab_key(browser, pages):
    with opened(browser, pages["run"]) as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.getAttribute('aria-labelledby')"))
        names = page.eval_on_selector_all("svg.plot", "all => all.map(e => e.getAttribute('aria-labelledby'))")
        assert reached >= set(names)


@pytest.mark.parametrize("name", ["run", "table", "mixed", "hostile", "account"])
def test_nothing_sticks_out_of_a_phone(browser, pages, name):
    with opened(browser, pages[name], width=360) as page:
        page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        widest = page.eval_on_selector_all(
            "svg.plot, .scroll, pre, p, h1, h2", "all => Math.max(...all.map(e => e.getBoundingClientRect().right))"
        )
        assert widest <= 360
        letters = page.eval_on_selector_all(
            ".plot text", "all => Math.min(...all.map(e => e.getBoundingClientRect().height))"
        )
        assert letters >= 9  # pixels, of the smallest letters in a chart


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["table", "mixed", "hostile", "account"])
def test_text_can_be_read_in_both_colour_schemes(browser, pages, name, scheme):
    with opened(browser, pages[name], scheme=scheme) as page:
        texts = page.evaluate(TEXTS)
        assert len(texts) > 50
        for text, colour, behind in texts:
            assert contrast(rgb(colour), background(behind)) >= 4.5, (text, colour, behind)
        body = luminance(background([page.evaluate("getComputedStyle(document.body).backgroundColor")]))
        assert (body < 0.1) == (scheme == "dark")


def test_a_table_shows_its_rows_and_the_direction_of_rounding(browser, pages, table):
    rows = json.loads((table / "reproduction.json").read_text())["rows"]
    with opened(browser, pages["table"]) as page:
        for name, direction in (("certified", 1), ("lower", -1)):
            found = quantities(page, name)
            assert [exact for _, exact in found] == [row["epsilon"][name] for row in rows]
            assert all(direction * (shown - exact) >= -1e-12 for shown, exact in found)
        assert page.locator("td.standing").all_inner_texts().count("refuted") == 1
        plot = page.locator("figure.chart", has_text="Printed and measured").locator(".plot")
        assert plot.bounding_box()["height"] > 300


def test_an_account_shows_what_is_left_and_a_mark_for_every_entry(browser, pages):
    with opened(browser, pages["account"]) as page:
        assert page.title() == "Privacy report"
        ((left, exact),) = set(quantities(page, "left-at-least"))
        assert left <= exact
        ((spent, exact),) = set(quantities(page, "spent"))
        assert spent >= exact
        plot = page.locator("section.account svg.plot")
        assert plot.locator("path.mark").count() == 3 + 3 + 2  # two curves over entries 0, 1 and 2, and the budget
        assert [tick.text_content() for tick in plot.locator(".grid text[text-anchor=middle]").all()] == ["0", "1", "2"]


def test_a_hostile_name_is_shown_as_text_and_the_receipt_as_doubtful(browser, pages):
    with opened(browser, pages["hostile"]) as page:
        assert page.title() == "Privacy report"
        assert HOSTILE in page.locator("#run-1 h2").inner_text()
        alarm = page.locator("#run-1 .alarm").first
        assert "Does not verify." in alarm.inner_text()
        red = rgb(alarm.locator("strong").evaluate("e => getComputedStyle(e).color"))
        assert red[0] > 2 * max(red[1], red[2])


def test_a_script_or_request_that_got_in_would_be_stopped_by_the_policy(browser, pages, tmp_path):
    """What escaping prevents, put in by hand: the browser refuses it, and says so."""
    bad = "<script>document.title='owned'</script><img src='http://localhost:9/x.png'>"
    file = tmp_path / "bad.html"
    file.write_text(pages["run"].read_text(encoding="utf-8").replace("<main>", f"<main>{bad}"), encoding="utf-8")
    refused: list[str] = []
    context = browser.new_context(offline=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.on("console", lambda message: refused.append(message.text))
    page.goto(file.as_uri())
    assert page.title() != "owned"
    assert sum("Content Security Policy" in message for message in refused) == 2
    context.close()


def test_a_printed_page_is_light_and_has_every_part(browser, pages, tmp_path):
    with opened(browser, pages["run"], scheme="dark") as page:
        page.emulate_media(media="print")
        assert luminance(background([page.evaluate("getComputedStyle(document.body).backgroundColor")])) > 0.9
        assert page.pdf()[:5] == b"%PDF-"


def rgb(colour: str) -> tuple[float, float, float, float]:
    """Red, green, blue from 0 to 255, and opacity, of a computed style."""
    parts = [float(part) for part in colour[colour.index("(") + 1 : -1].replace("/", ",").split(",")]
    return parts[0], parts[1], parts[2], parts[3] if len(parts) > 3 else 1.0


def background(colours: list[str]) -> tuple[float, float, float, float]:
    """The first opaque colour; white paper behind everything."""
    return next((found for found in map(rgb, colours) if found[3] == 1), (255.0, 255.0, 255.0, 1.0))


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance (WCAG 2.1)."""
    linear = [c / 12.92 if c <= 0.04045 else math.pow((c + 0.055) / 1.055, 2.4) for c in (v / 255 for v in colour[:3])]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Contrast ratio (WCAG 2.1), from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)

"""The page in a real browser: sliders, keys, links, phones; and nothing that leaves the machine."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.browser import PATIENCE

from plrvo.cli.main import main

FAST = "sample_rate=0.1&steps=50&dimension=650"
SETTLED = "#answer-state[data-settled=yes]"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The command itself, as users run it."""
    command = [sys.executable, "-m", "plrvo", "explore", "--port", "0", "--no-browser", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        yield json.loads(served.stdout.readline())["url"]
        served.terminate()


@contextmanager
def opened(browser: Any, url: str, query: str = FAST, width: int = 1000, scheme: str = "light") -> Iterator[Any]:
    """The page at rest; afterwards nothing may have gone wrong, and nothing been asked of another machine."""
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    try:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        page.goto(f"{url}?{query}")
        page.wait_for_selector(SETTLED)
        yield page
        assert said == []
        host = url.removeprefix("http://")
        assert asked
        assert all(each.startswith((url, f"ws://{host}", "data:")) for each in asked), asked
    finally:
        context.close()


def number(page: Any, name: str) -> float:
    return float(page.get_attribute(f"#answer [data-quantity='{name}']", "data-exact"))


def copied(page: Any, name: str) -> str:
    page.click(f"[data-copy='{name}']")
    page.wait_for_selector(f"[data-copy='{name}']:text('Copied')")
    return page.evaluate("navigator.clipboard.readText()")


def test_the_page_says_what_the_command_says_and_the_command_can_be_copied(browser, url, capsys):
    with opened(browser, url, "noise=laplace&width=2.3&clip=0.4&sample_rate=1&steps=10") as page:
        words = copied(page, "command").split()
        assert main([*words[1:], "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        for name in ("certified", "lower", "published"):
            assert number(page, name) == said[f"epsilon_{name}"]
        assert copied(page, "python").startswith("import plrvo\n")


def test_a_slider_changes_the_numbers_at_once_and_the_certificate_follows(browser, url):
    with opened(browser, url) as page:
        before = number(page, "certified")
        page.evaluate("window.answers = []; new MutationObserver(() => window.answers.push(performance.now()))"
                      ".observe(document.getElementById('answer'), {childList: true})")  # fmt: skip
        page.evaluate(
            "() => { const slider = document.querySelector('[data-for=width]'); slider.value = +slider.value + 60;"
            " window.moved = performance.now(); slider.dispatchEvent(new Event('input', {bubbles: true})); }"
        )
        page.wait_for_selector("#answer-state[data-settled=no]")
        by_moments = number(page, "certified")
        page.wait_for_selector(SETTLED)
        assert number(page, "certified") < by_moments < before
        assert float(page.input_value("#width")) > 1.1
        assert page.evaluate("window.answers[0] - window.moved") < 1000  # milliseconds, on a machine that tests share


def test_a_link_restores_everything(browser, url):
    with opened(browser, url, "noise=gamma&k=30&width=3&examples=700&batch=700&epochs=2&delta=1e-6") as page:
        page.fill("#width", "2.75")
        page.wait_for_selector(f"{SETTLED}[data-query*='width=2.75']")
        assert "width=2.75" in page.url
        link, shown = copied(page, "link"), number(page, "certified")
        assert link.startswith(f"{url}?")
    with opened(browser, url, link.partition("?")[2]) as page:
        assert number(page, "certified") == shown
        assert page.is_checked("[value=gamma]")
        assert page.is_checked("[value=by-data]")
        for name, value in {"width": "2.75", "k": "30", "batch": "700", "delta": "1e-06"}.items():
            assert page.input_value(f"#{name}") == value
        assert page.is_hidden("#sample_rate")


def test_everything_can_be_done_with_keys(browser, url):
    with opened(browser, url) as page:
        before = number(page, "certified")
        page.focus("[data-for=width]")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("PageUp")
        assert float(page.input_value("#width")) > 1.2
        said = page.get_attribute("[data-for=width]", "aria-valuetext")
        assert said == page.input_value("#width")
        page.wait_for_selector(f"{SETTLED}[data-query*='width={said}']")
        assert number(page, "certified") < before
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.dataset.copy"))
        assert {"steps", "sample_rate", "delta", "command", "python", "link", "compare"} <= reached


def test_nothing_sticks_out_of_a_phone_and_epsilon_stays_in_sight(browser, url):
    with opened(browser, url, width=360) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.locator("[data-for=width]").scroll_into_view_if_needed()
        box = page.locator("#short").bounding_box()
        assert page.inner_text("#short").startswith("epsilon at most")
        assert box["y"] + box["height"] <= 800


@pytest.mark.parametrize("query", ["delta=2", "noise=<script>document.title='owned'</script>", "steps=9e99", "x=1"])
def test_a_bad_link_is_one_clear_line_and_the_usual_values(browser, url, query):
    with opened(browser, url, query) as page:
        alarm = page.inner_text("header .alarm")
        assert alarm.startswith(f"This link is not used. {query.partition('=')[0]}=")
        assert "Traceback" not in page.content()
        assert page.title() == "plrvo explore"
        assert page.input_value("#width") == "1.1"


def test_what_is_typed_wrongly_is_said_and_marked(browser, url):
    with opened(browser, url) as page:
        page.fill("#delta", "zero")
        page.wait_for_selector("#wrong")
        assert page.inner_text("#wrong") == "Not answered. delta='zero': expected a number."
        page.wait_for_selector("#delta[aria-invalid=true]")
        page.fill("#delta", "1e-6")
        page.wait_for_selector(SETTLED)
        assert page.get_attribute("#delta", "aria-invalid") is None


def test_a_dark_page_is_dark(browser, url):
    with opened(browser, url, scheme="dark") as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"


@pytest.mark.slow  # three noises are fitted
def test_the_noises_are_compared_on_request(browser, url):
    with opened(browser, url, "sample_rate=1&steps=1&dimension=1") as page:
        page.click("#compare")
        page.wait_for_selector("#comparison table")
        rows = page.locator("#comparison tbody tr").all_inner_texts()
        assert [row.split()[0] for row in rows] == ["gaussian", "laplace", "gamma"]
        assert sum("recommended" in row for row in rows) == 1

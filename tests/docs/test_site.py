"""The built site as it lies on disk: links lead somewhere, nothing is asked of a network, and search answers."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from docs.extensions.mathematics import PAGES, display, inline
from docs.extensions.theory_pages import sections
from tests.browser import PATIENCE

ROOT = Path(__file__).parents[2]
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mkdocs = pytest.importorskip("mkdocs.commands.build")
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        mkdocs.build(config)
    return folder


class Links(HTMLParser):
    """Where a page leads, what it loads, and the places in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        if tag in LOADING and given.get("rel") != "canonical" and LOADING[tag] in given:
            self.loads.append(given[LOADING[tag]])


@pytest.mark.filterwarnings("ignore")  # of what builds it
def test_every_link_leads_to_a_place_on_disk_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 40
    for page, found in pages.items():
        for link in (*found.leads, *found.loads):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto"):
                assert link not in found.loads, (page.name, link)
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.is_file(), (page.name, link)
            if parts.fragment and target in pages:
                assert parts.fragment in pages[target].places | {"__top"}, (page.name, link)


@pytest.mark.filterwarnings("ignore")
def test_pages_open_from_disk_without_a_word_and_without_a_request(site: Path, browser: Any) -> None:
    said: list[str] = []
    asked: list[str] = []
    page = browser.new_context(offline=True, viewport={"width": 360, "height": 800}).new_page()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    for file in sorted(site.glob("*.html")):
        if file.name != "404.html":
            page.goto(file.as_uri(), wait_until="load")
            assert said == [], file.name
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, file.name  # of a phone
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.filterwarnings("ignore")
def test_search_answers_from_disk_and_copies_are_what_was_typed(site: Path, browser: Any) -> None:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto((site / "start.html").as_uri())
    found = page.locator(".md-search-result__meta", has_text="matching document")
    for _ in range(20):  # what is typed before the index is there is not answered
        page.locator(".md-search__input").fill("")
        page.locator(".md-search__input").press_sequentially("canary")
        page.wait_for_timeout(500)
        if found.count():
            break
    found.wait_for()
    page.goto((site / "start.html").as_uri())
    typed = page.evaluate(
        """() => [...document.querySelectorAll('.highlight code')].map(code => {
            code.setAttribute('data-md-copying', '')
            return code.innerText
        })"""
    )
    scrolled = "code => code.scrollWidth > code.clientWidth + 1"
    assert not page.evaluate(f"[...document.querySelectorAll('pre > code')].some({scrolled})")  # nothing is cut off
    sessions = [text for text in typed if "plrvo verify" in text]
    assert sessions
    assert all(not re.search(r"^\$|verified|certified epsilon", text, re.MULTILINE) for text in sessions)


def test_formulas_are_told_from_names() -> None:
    assert inline("e^(-y)") == "<math><msup><mrow>x</mrow></msup></math>".replace(
        "<mrow>x</mrow>", "<mi>e</mi><mrow><mo>−</mo><mi>y</mi></mrow>"
    )
    assert inline("‖g‖₂ ≤ C") is not None
    for name in ("Noise.log_moment", "sample_rate", "shared=True", "published", "accounting/merge.py"):
        assert inline(name) is None, name
    shown = display("F(x) = ∑_{i=0}^n x_i        (Noise.log_moment)\n     ≤ 1 over the batch")
    assert shown is not None
    assert shown.count("<mtr>") == 2
    assert "<munderover>" in shown
    assert "<code>Noise.log_moment</code>" in shown


def test_what_a_script_ends_with_is_seen() -> None:
    """Of e^A(x) it is not: A alone would be raised."""
    for page in (ROOT / "docs").glob("*.md"):
        if page.name.startswith(PAGES):
            assert re.findall(r".*\^[^\W\d]\(.*", page.read_text(encoding="utf-8")) == [], page.name


def test_every_section_of_the_theory_is_a_page() -> None:
    before, found = sections()
    whole = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert before + "".join(section.text for section in found) == whole
    assert len({section.name for section in found}) == len(found) > 10

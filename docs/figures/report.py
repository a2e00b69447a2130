"""The pictures of reports: pages of real runs, as a browser shows them (needs chromium)."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

from plrvo.cli.main import main as plrvo

IMAGES = Path(__file__).parents[1] / "images"


@dataclass(frozen=True)
class Picture:
    """A run, and how much of its page is shown."""

    name: str
    train: tuple[str, ...]
    height: int


PICTURES = (
    # The noise of the last row of the paper's CNN tables, whose published epsilon is refuted.
    Picture(
        "report",
        (
            *("digits", "--model", "logistic", "--noise", "gamma", "--k", "40000", "--theta", "6e-5", "--clip", "0.5"),
            *("--sample-rate", "0.01", "--steps", "300", "--seed", "0"),
        ),
        2130,
    ),
    # What the first page of the site trains: fresh noise, so that every drawing shows another run.
    Picture("report-front", ("digits", "--epsilon", "3"), 1100),
)


def main() -> None:
    """Draw them all."""
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for picture in PICTURES:
            run, page_file = f"{place}/{picture.name}/digits", Path(place) / f"{picture.name}.html"
            plrvo(["train", *picture.train, "--out", run])
            plrvo(["report", run, "--out", str(page_file)])
            for ending, scheme in (("", "light"), ("-dark", "dark")):
                page = browser.new_page(viewport={"width": 980, "height": picture.height}, color_scheme=scheme)
                page.goto(page_file.as_uri())
                page.screenshot(path=IMAGES / f"{picture.name}{ending}.png")
        browser.close()


if __name__ == "__main__":
    main()

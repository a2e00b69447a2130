"""The picture of the report guide: the page of a real run, as a browser shows it (needs chromium)."""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from plrvo.cli.main import main as plrvo

# The noise of the last row of the paper's CNN tables, whose published epsilon is refuted.
TRAIN = ["digits", "--model", "logistic", "--noise", "gamma", "--k", "40000", "--theta", "6e-5", "--clip", "0.5"]
TRAIN += ["--sample-rate", "0.01", "--steps", "300", "--seed", "0"]


def main() -> None:
    """Draw docs/images/report.png."""
    image = Path(__file__).parents[1] / "images" / "report.png"
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        page_file = Path(place) / "digits.html"
        plrvo(["train", *TRAIN, "--out", f"{place}/digits"])
        plrvo(["report", f"{place}/digits", "--out", str(page_file)])
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 980, "height": 2130})
        page.goto(page_file.as_uri())
        page.screenshot(path=image)
        browser.close()


if __name__ == "__main__":
    main()

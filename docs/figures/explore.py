"""The picture of the guide to `plrvo explore`: the page as a browser shows it (needs chromium)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / "images"
COMMAND = [sys.executable, "-m", "plrvo", "explore", "--port", "0", "--no-browser", "--json"]


def main() -> None:
    """Draw docs/images/explore.png and explore-dark.png."""
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as served, sync_playwright() as playwright:
        url = json.loads(served.stdout.readline())["url"] if served.stdout else ""
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, scheme in (("explore.png", "light"), ("explore-dark.png", "dark")):
            context = browser.new_context(viewport={"width": 980, "height": 1640}, color_scheme=scheme)
            page = context.new_page()
            page.goto(f"{url}?noise=laplace&width=1.1&examples=60000&batch=600&epochs=30")
            page.wait_for_selector("#answer-state[data-settled=yes]")
            page.screenshot(path=IMAGES / name)
        browser.close()
        served.terminate()


if __name__ == "__main__":
    main()

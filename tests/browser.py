"""The browser that pages are looked at with."""

from __future__ import annotations

import os
import shutil

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
PATIENCE = 120_000  # milliseconds that a page may take, on a busy machine too


def find_browser() -> str | None:
    """The browser that PLRVO_BROWSER names, or the first of the usual ones."""
    names = [os.environ.get("PLRVO_BROWSER"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    return next((found for name in names if name and (found := shutil.which(name))), None)

"""A hook of mkdocs: no page asks another host for anything, search included."""

from __future__ import annotations

from typing import Any

from mkdocs.utils import get_relative_url

ELSEWHERE = "https://unpkg.com/iframe-worker/shim"  # which the theme asks for so that search works from disk
OURS = "javascripts/worker.js"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the script of ours in the place of theirs."""
    return output.replace(ELSEWHERE, get_relative_url(OURS, page.url))


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """The page for what is not there has addresses from the root of a host, where it may be shown for any address."""
    return output_content.replace(ELSEWHERE, f"/{OURS}") if template_name == "404.html" else output_content

"""A hook of mkdocs: the theory is one file to write and to test, and a page for each section to read.

Links to `theory.md#anchor`, on every page, go to the page that has the anchor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).parents[1] / "theory.md"
_HEADING = re.compile(r"^## (?P<title>.+?)(?: \{ #(?P<id>[\w-]+) \})?$", re.MULTILINE)
_ANCHOR = re.compile(r"\{ #([\w-]+) \}")
_LINK = re.compile(r"\]\((?:theory\.md)?#([\w-]+)\)")


@dataclass(frozen=True)
class Section:
    """A page of the theory."""

    name: str
    title: str
    text: str

    @property
    def anchors(self) -> set[str]:
        return {*_ANCHOR.findall(self.text), self.title.lower()}

    @property
    def page(self) -> str:
        """Its headings one level up."""
        return re.sub(r"^##(#*) ", r"#\1 ", self.text, flags=re.MULTILINE)


@cache
def sections() -> tuple[str, tuple[Section, ...]]:
    """What comes before the first section, and the sections."""
    text = SOURCE.read_text(encoding="utf-8")
    found = [*_HEADING.finditer(text)]
    ends = [match.start() for match in found[1:]] + [len(text)]
    return text[: found[0].start()], tuple(
        Section(f"theory-{match['id'] or match['title'].lower()}.md", match["title"], text[match.start() : end])
        for match, end in zip(found, ends, strict=True)
    )


def on_config(config: Any) -> Any:
    """Put the sections into the navigation, in the place of the one page."""
    _, found = sections()
    pages = [{"Overview": "theory.md"}, *({section.title: section.name} for section in found)]
    config.nav = [{"Theory": pages} if entry == {"Theory": "theory.md"} else entry for entry in config.nav]
    return config


def on_files(files: Files, config: Any) -> Files:
    """The overview in the place of the whole, and a page for each section."""
    before, found = sections()
    whole = files.get_file_from_path("theory.md")
    if whole is not None:
        files.remove(whole)
    contents = "\n".join(f"- [{section.title}]({section.name})" for section in found)
    files.append(File.generated(config, "theory.md", content=f"{before}## Contents\n\n{contents}\n"))
    for section in found:
        files.append(File.generated(config, section.name, content=section.page))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Follow anchors of the theory to where they are now."""
    uri, (_, found) = page.file.src_uri, sections()
    home = {anchor: section.name for section in found for anchor in section.anchors}

    def follow(match: re.Match[str]) -> str:
        inside = uri.startswith("theory") or "theory.md" in match[0]
        target = home.get(match[1]) if inside else None
        return match[0] if target is None else f"]({'' if target == uri else target}#{match[1]})"

    return _LINK.sub(follow, markdown)

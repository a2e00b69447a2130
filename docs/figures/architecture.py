"""The two pictures of the architecture page: what becomes of a workload, and which folder may import which.

`python -m docs.figures.architecture` writes them. The folders and their order come from `[tool.importlinter]`, what is
said of each from its docstring; a test holds the files to it.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTH = 520

# (what there is, what it is), and between two of them (the folders at work, what they do).
FLOW = (
    ("Workload + budget", "sampling rate, steps, clip, dimension; epsilon, delta"),
    ("designer/, accounting/, noise/", "choose a noise and prove what it costs"),
    ("Plan", "noise, workload, clipping, budget; what certifies it"),
    ("tasks/, training/, records/", "a job: clip, add the noise, count and keep every step"),
    ("model + Receipt", "what this run may claim, from the optimizer's counters"),
    ("audit/", "attack the mechanism, the run or its models"),
    ("verdict", "consistent, or refuted"),
    ("report/", "recompute every receipt, draw"),
    ("page", "one HTML file that needs no network"),
)

# Colours of the picture itself: opaque, so that it can be read on whatever the page around it is.
STYLE = """
  .ground { fill: #ffffff } .box { fill: #e8f0fa; stroke: #2a6fbb } .name { fill: #12355b; font-weight: 600 }
  .words { fill: #333f48 } .folder { fill: #a5401f; font-weight: 600 } .line { stroke: #5f6a72; fill: none }
  .tip { fill: #5f6a72 } .light { fill: #eef7ef; stroke: #2e8b57 }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #1e222a } .box { fill: #24354a; stroke: #6fa8e0 } .name { fill: #e3eefb } .words { fill: #c9d1d9 }
    .folder { fill: #f0a07c } .line { stroke: #9aa3aa } .tip { fill: #9aa3aa } .light { fill: #22382b; stroke: #6cc08b }
  }
"""


def layers() -> list[str]:
    """The folders and files of `src/plrvo`, highest first, as the linter of imports has them."""
    return [name.strip("()") for name in _contract("layers")["layers"]]


def light() -> set[str]:
    """The folders that the linter keeps away from heavy packages."""
    return {name.removeprefix("plrvo.") for name in _contract("light")["source_modules"]}


def _contract(name: str) -> dict[str, Any]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(contract for contract in contracts if contract["id"] == name)


def described(layer: str) -> str:
    """The first sentence of a layer's docstring."""
    source = ROOT / "src" / "plrvo" / layer / "__init__.py"
    if not source.exists():
        source = source.parent.with_suffix(".py")
    words = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return words.split("\n\n")[0].replace("\n", " ").replace("`", "")


def flow() -> str:
    """What becomes of a workload."""
    parts, y = [], 16
    for i, (name, words) in enumerate(FLOW):
        if i % 2 == 0:
            parts += [_box(20, y, WIDTH - 40, 62, "box"), _text(36, y + 26, name, "name", 18)]
            parts.append(_text(36, y + 48, words, "words", 15))
            y += 62
        else:
            parts += [_arrow(60, y + 3, y + 53), _text(84, y + 24, name, "folder", 16)]
            parts.append(_text(84, y + 44, words, "words", 15))
            y += 58
    return _picture(y + 16, parts, "Workload and budget become a plan, a model with a receipt, a verdict and a page")


def folders() -> str:
    """The layers of the package: each imports from those below it only."""
    parts, y, top = [], 16, 16
    for layer in layers():
        lines = textwrap.wrap(described(layer), 40)
        height = 20 + 19 * max(1, len(lines))
        parts.append(_box(48, y, WIDTH - 64, height, "light" if layer in light() else "box"))
        folder = (ROOT / "src" / "plrvo" / layer).is_dir()
        parts.append(_text(60, y + 24, layer + ("/" if folder else ".py"), "name", 16))
        parts += [_text(176, y + 24 + 19 * i, line, "words", 14) for i, line in enumerate(lines)]
        y += height + 7
    parts.insert(0, _arrow(26, top, y - 7))
    parts.append(_text(48, y + 14, "The arrow: may import. Green: never imports PyTorch.", "words", 14))
    return _picture(y + 32, parts, "The folders of src/plrvo; imports point down only")


def _box(x: int, y: int, width: int, height: int, kind: str) -> str:
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def _text(x: int, y: int, words: str, kind: str, size: int) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" font-size="{size}">{escape(words)}</text>'


def _arrow(x: int, top: int, bottom: int) -> str:
    tip = f'<path class="tip" d="M{x - 6} {bottom - 9} L{x + 6} {bottom - 9} L{x} {bottom} Z"/>'
    return f'<path class="line" stroke-width="2" d="M{x} {top} V{bottom - 8}"/>{tip}'


def _picture(height: int, parts: list[str], title: str) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>'
    body = "\n".join((ground, *parts))
    return f'{head} role="img">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n'


PICTURES = {"architecture-flow.svg": flow, "architecture-folders.svg": folders}

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (IMAGES / name).write_text(picture(), encoding="utf-8")

"""What a reader of the pages types: the commands of a page from its top to its end.

Comments in a page, right above a block, say how it is walked through:

| comment | what it does |
|---|---|
| `<!-- walk: --steps 4 -->` | so much goes behind every command of the block that knows the options: a quicker one |
| `<!-- parsed: takes hours -->` | its commands are read and checked, and not run |
| `<!-- exits: 0 0 2 -->` | the exit codes of its commands, which are 0 otherwise |
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from plrvo.tasks.catalog import NAMES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_COMMENT = re.compile(r"^<!-- (walk|parsed|exits): (.*?) -->$")
_FENCE = re.compile(r"^( *)```(\w*)")
_TYPED = re.compile(r"^(\.venv/bin/)?(plrvo|make|pip|python) ")
_FOLDER = re.compile(r"^(FOLDER\w*|DATA)$")  # of data sets, which the reader fills in


@dataclass(frozen=True)
class Typed:
    """A command, and how it is walked through; `line` is where its block begins."""

    words: str
    line: int
    code: int = 0
    parsed: bool = False
    quicker: str = ""  # words that make less work of it

    @property
    def split(self) -> list[str]:
        return shlex.split(self.words, comments=True)

    @property
    def program(self) -> str:
        return Path(self.split[0]).name

    @property
    def needs_data(self) -> bool:
        words = self.split
        trained = words[words.index("train") + 1] if "train" in words[1:-1] else "digits"
        return any(_FOLDER.match(word) for word in words) or (trained in NAMES and trained != "digits")

    @property
    def out(self) -> str | None:
        """The folder that it fills."""
        return self.split[self.split.index("--out") + 1] if "--out" in self.split else None

    def with_data(self, folder: Path | None) -> "Typed":
        """With the folder of data sets in the reader's place; not run where there is none."""
        if not self.needs_data:
            return self
        if folder is None:
            return replace(self, parsed=True)
        return replace(self, words=shlex.join(str(folder) if _FOLDER.match(word) else word for word in self.split))


def typed(page: Path) -> list[Typed]:
    """The commands of a page, in order."""
    found: list[Typed] = []
    for line, language, body, said in _blocks(page.read_text(encoding="utf-8").split("\n")):
        lines = re.sub(r"\\\n\s*", "", body).split("\n")
        if language == "console":
            commands = [words.removeprefix("$ ") for words in lines if words.startswith("$ ")]
        else:
            commands = [words for words in lines if words.strip()]
        codes = [int(code) for code in said.get("exits", "").split()] or [0] * len(commands)
        assert len(codes) == len(commands), (page.name, line)
        for command, code in zip(commands, codes, strict=True):
            # Whatever the paper's entries are has tests of its own, at the scale of seconds.
            parsed = "parsed" in said or " reproduce " in command.replace(" reproduce --list", "")
            found.append(Typed(command, line, code, parsed, said.get("walk", "")))
    return found


def _blocks(lines: list[str]) -> Iterator[tuple[int, str, str, dict[str, str]]]:
    """Line, language, source and comments of every block of commands: fenced, or indented after an empty line."""
    at, said = 0, {}
    while at < len(lines):
        text, begin = lines[at], at
        fence, comment = _FENCE.match(text), _COMMENT.match(text)
        at += 1
        if fence:
            while not lines[at].startswith(f"{fence[1]}```"):
                at += 1
            if fence[2] in ("sh", "console"):
                yield begin + 1, fence[2], "\n".join(row[len(fence[1]) :] for row in lines[begin + 1 : at]), said
            at += 1
        elif text.startswith("    ") and not lines[begin - 1].strip() and _TYPED.match(text[4:]):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            yield begin + 1, "sh", "\n".join(row[4:] for row in lines[begin:at]), said
        if comment:
            said = {**said, comment[1]: comment[2]}
        elif text.strip():
            said = {}

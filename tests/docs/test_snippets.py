"""Every example in the documentation runs, and shows what it says."""

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md") if page.exists()]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(page: Path, *languages: str) -> Iterator[tuple[str, str, int]]:
    """Language, source and line of each fenced block, in order."""
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        if match[2] in languages:
            yield match[2], match[3], text.count("\n", 0, match.start(3))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_of_a_page_run_in_order(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, source, line in blocks(page, "python", "pycon"):
        if language == "python":
            exec(compile("\n" * line + source, str(page), "exec"), namespace)
            continue
        example = doctest.DocTestParser().get_doctest(source, namespace, page.name, str(page), line)
        report: list[str] = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
        result = runner.run(example, out=report.append, clear_globs=False)
        namespace = example.globs  # a copy, which the next block goes on with
        assert result.failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_plrvo_commands_of_a_page_succeed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from plrvo.cli.main import main  # here, so that the pages about Python do not depend on the commands

    monkeypatch.chdir(tmp_path)  # some of them write files
    for _, source, _ in blocks(page, "console"):
        for command in re.findall(r"^\$ plrvo (.*)$", source.replace("\\\n", " "), re.MULTILINE):
            assert main(shlex.split(command)) == 0, command


def test_pages_have_examples() -> None:
    """The pattern that finds blocks still finds them."""
    assert sum(1 for page in PAGES for _ in blocks(page, "python", "pycon")) > 20

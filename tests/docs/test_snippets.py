"""Every example in the documentation runs, and shows what it says."""

import doctest
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md") if page.exists()]
FENCE = re.compile(r"^( *)```(\w+)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?( %)?")
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
        example = doctest.DocTestParser().get_doctest(source, namespace, f"{page.name} {line}", str(page), line)
        report: list[str] = []
        runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
        result = runner.run(example, out=report.append, clear_globs=False)
        namespace = example.globs  # a copy, which the next block goes on with
        assert result.failed == 0, "".join(report)


def sessions(source: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and the output that is shown below it."""
    for part in re.split(r"^\$ ", source.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def same_output(shown: str, real: str) -> bool:
    """Whether words are the same, percentages within a point, and other numbers within a thousandth.

    The last digits depend on the computer; what a training run reaches does so a little more. What is shown may begin
    with a line of dots, which stands for the lines before.
    """
    if shown.startswith("...\n"):
        shown = shown.removeprefix("...\n").rstrip()
        real = "\n".join(real.rstrip().split("\n")[-len(shown.split("\n")) :])
    if " ".join(NUMBER.sub("#", shown).split()) != " ".join(NUMBER.sub("#", real).split()):
        return False
    pairs = zip(NUMBER.finditer(shown), NUMBER.finditer(real), strict=True)
    return all(_close(a[0], b[0]) for a, b in pairs)


def _close(a: str, b: str) -> bool:
    if a.endswith("%"):
        return b.endswith("%") and abs(float(a[:-2]) - float(b[:-2])) <= 1
    return not b.endswith("%") and math.isclose(float(a), float(b), rel_tol=1e-3)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_plrvo_commands_of_a_page_succeed_and_show_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from plrvo.cli.main import main  # here, so that the pages about Python do not depend on the commands

    monkeypatch.chdir(tmp_path)  # some of them write files
    monkeypatch.setenv("COLUMNS", "80")
    for _, source, _ in blocks(page, "console"):
        for command, shown in sessions(source):
            if not command.startswith("plrvo "):
                continue
            capsys.readouterr()
            assert main(shlex.split(command)[1:]) == 0, command
            real = capsys.readouterr().out
            assert not shown.strip() or same_output(shown, real), f"{command} prints\n{real}"


def test_output_is_compared() -> None:
    shown = "test accuracy 80.6 %\ncertified 2.382  of a claim\n"
    assert same_output(shown, "test accuracy 81.1 %   \ncertified 2.3821 of a claim")
    for other in ("test accuracy 82.6 %\ncertified 2.382 of a claim", "test accuracy 80.6 %\ncertified 2.4 of a claim"):
        assert not same_output(shown, other)
    assert same_output(f"...\n{shown}", f"before\n{shown}")
    assert not same_output(f"...\n{shown}", f"{shown}after\n")
    assert not same_output(shown, "test accuracy 80.6\ncertified 2.382 of a claim")


def test_pages_have_examples() -> None:
    """The pattern that finds blocks still finds them."""
    assert sum(1 for page in PAGES for _ in blocks(page, "python", "pycon")) > 20

"""Every page is walked through as a reader would: what it says to type is typed, from the top, in a real process."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.conftest import _data_dir
from tests.docs.pages import PAGES, ROOT, Typed, typed

from plrvo.cli.help import commands
from plrvo.cli.main import app
from plrvo.tasks.job import Job

# Those whose commands take a few seconds together; the others are for -m slow.
QUICK = {"index.md"}
WALKED = [page for page in PAGES if any(not command.parsed for command in typed(page))]
INLINE = re.compile(r"`(plrvo [^`\n]+)`")


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command of the app that the words call, and what is left of them for it."""
    found, rest = typer.main.get_command(app), list(words)
    while rest and rest[0] in getattr(found, "commands", {}):
        found = found.commands[rest.pop(0)]
    return found, rest


def check_words(words: list[str]) -> None:
    """The command takes these words, and a job of them makes sense."""
    command, rest = command_of(words)
    context = command.make_context("plrvo", list(rest))
    if command.name == "train" and not context.params["resume"] and context.params["plan"] is None:
        asked = {name: value for name, value in context.params.items() if value is not None}
        asked |= {name: str(value.value) for name, value in asked.items() if hasattr(value, "value")}
        Job.read({name: value for name, value in asked.items() if name not in ("out", "resume", "verbose", "as_json")})


@pytest.mark.parametrize("page", [page for page in PAGES if typed(page)], ids=lambda page: page.name)
def test_what_a_page_says_to_type_can_be_typed(page: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for command in typed(page):
        if command.program == "plrvo":
            check_words(command.split[1:])
        elif command.program == "make":
            assert command.split[1] in targets, command
        else:
            asked = re.search(r"\[([\w,]+)\]", command.words)
            assert "pip install" in command.words, command
            assert set(asked[1].split(",") if asked else ()) <= set(extras), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_have_their_options(page: Path) -> None:
    for found in INLINE.findall(page.read_text(encoding="utf-8")):
        command, rest = command_of(re.split(r"\s+", found)[1:])
        below = [each for _, each in commands(command, "")]  # of a group, one of its commands is meant
        known = {name for each in below for parameter in each.params for name in parameter.opts} | {"--help"}
        asked = {word.partition("=")[0] for word in rest if re.match(r"--\w", word)}
        assert asked <= known, (page.name, found)


def quicker(command: Typed) -> str:
    """What makes less work of it, if the command knows it."""
    asked = {word for word in shlex.split(command.quicker) if word.startswith("--")}
    known = {name for parameter in command_of(command.split[1:])[0].params for name in parameter.opts}
    return command.quicker if asked <= known else ""


def with_less_work(command: Typed) -> str:
    """What is typed in the place of it: an option stands once."""
    words, less = command.words, quicker(command)
    for option in re.findall(r"--[\w-]+", less):
        words = re.sub(rf" {option}[ =]\S+", "", words)
    return f"{words} {less}"


def walk(page: Path, folder: Path) -> list[Typed]:
    """Type the commands of a page in this folder; returns those that were run."""
    here = folder / ".venv" / "bin"
    here.mkdir(parents=True)
    (here / "plrvo").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m plrvo "$@"\n', encoding="utf-8")
    (here / "plrvo").chmod(0o755)
    environment = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg"}
    data = _data_dir()
    environment |= {"PLRVO_DATA": str(data)} if data else {"PLRVO_OFFLINE": "1"}
    done, left_out = [], set()
    for command in (each.with_data(data) for each in typed(page)):
        if command.parsed or left_out & {part for word in command.split[1:] for part in (word, str(Path(word).parent))}:
            left_out |= {command.out} - {None}
            continue
        if command.program != "plrvo":
            continue
        shell = [shutil.which("sh") or "/bin/sh", "-c", with_less_work(command)]
        ended = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
        told = f"{page.name}, line {command.line}: {command.words}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        assert ended.returncode == command.code, told
        assert "Traceback" not in ended.stderr, told
        assert all(len(row) <= 80 for row in ended.stdout.split("\n") if set(row) & set("│┃")), told
        done.append(command)
    return done


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page.name in QUICK else pytest.mark.slow, id=page.name) for page in WALKED],
)
def test_a_page_can_be_walked_through(page: Path, tmp_path: Path) -> None:
    done = walk(page, tmp_path)
    assert done or all(command.needs_data or command.program != "plrvo" for command in typed(page))


def test_a_page_that_is_wrong_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for text, message in (
        ("```sh\nplrvo verify nothing.json\n```\n", "nothing.json"),
        ("Say\n\n    plrvo account --noise-multiplier 1 --sample-rate 0.1\n", "--steps"),
        ("<!-- exits: 2 -->\n```console\n$ plrvo --version\n```\n", "plrvo"),
    ):
        page.write_text(text, encoding="utf-8")
        with pytest.raises(AssertionError, match=message):
            walk(page, tmp_path / message)
    page.write_text("```sh\nplrvo account --stops 3\n```\n", encoding="utf-8")
    with pytest.raises(Exception, match="--stops"):
        test_what_a_page_says_to_type_can_be_typed(page)


def test_pages_say_much_to_type() -> None:
    """What finds the commands still finds them."""
    assert sum(len(typed(page)) for page in PAGES) > 80
    assert {page.name for page in WALKED} > {"README.md", "start.md", "index.md", "guide-budget.md"}

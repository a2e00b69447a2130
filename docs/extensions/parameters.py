"""Parameters, results and errors of what a docstring tells in running text, as sections of the reference page."""

from typing import Any

from griffe import Extension, Object

_NOISE = "noise: what is added to each sum of clipped gradients."
_WORK = "work: sampling rate, steps, clip and dimension."
_DELTA = "delta: the failure probability of the guarantee, well below one over the number of examples."
_REFUSED = (
    "InvalidArgument: for arguments of another class or out of range; it names the argument and what would be right."
)
_PLAN = (
    "noise: what is added to each sum of clipped gradients.",
    "workload: sampling rate, steps, clip and dimension.",
    "epsilon: the budget; None for a noise that was given rather than fitted to one.",
    _DELTA,
    "correlation: how the noise of different steps hangs together; None for independent steps.",
    "clipping: which norm the clip bounds.",
    "stages: the kinds of step that a schedule made; usually none.",
)
SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "plrvo.accounting.ledger.epsilon": {
        "Args": (_NOISE, _WORK, _DELTA),
        "Returns": ("The bracket: certified, lower and published epsilon.",),
        "Raises": (_REFUSED,),
    },
    "plrvo.accounting.ledger.delta": {
        "Args": (_NOISE, _WORK, "epsilon: the epsilon of the guarantee."),
        "Returns": ("The smallest delta that is certified at this epsilon.",),
        "Raises": (_REFUSED,),
    },
    "plrvo.accounting.calibration.calibrate": {
        "Args": (
            "noise: the shape; its own width is where the search starts.",
            _WORK,
            "epsilon: the budget.",
            _DELTA,
            "correlation: how the noise of different steps hangs together; None for independent steps.",
        ),
        "Returns": ("The noise with the smallest width that certifies the budget, of the class of `noise`.",),
        "Raises": (_REFUSED,),
    },
    "plrvo.accounting.workload.Workload": {
        "Args": (
            "sample_rate: the probability with which an example joins a batch, above 0 and at most 1.",
            "steps: how many noisy sums are released.",
            "clip: the norm to which each gradient is clipped.",
            "dimension: how many parameters are trained. Gaussian noise costs the same in any number: 1 will do.",
        ),
        "Raises": (_REFUSED,),
    },
    "plrvo.accounting.ledger.Ledger": {
        "Args": (
            "entries: noises with their workloads; none at first (`plus` adds them).",
            "layered: whether each layer has a share of the clip, and is charged for by itself.",
        ),
        "Raises": (_REFUSED,),
    },
    "plrvo.accounting.plan.Plan": {
        "Args": _PLAN,
        "Raises": ("InvalidArgument: where the noise misses the budget, or a part is none.",),
    },
    "plrvo.designer.designed.Design": {"Args": _PLAN},
    "plrvo.designer.designed.design": {"Returns": ("The plan, with the reasons for it.",)},
}


class Parameters(Extension):
    """Adds the sections above to the docstrings that have none."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring and obj.path in SECTIONS:
            for title, lines in SECTIONS[obj.path].items():
                told = "\n".join(f"    {line}" for line in lines)
                obj.docstring.value += f"\n\n{title}:\n{told}"

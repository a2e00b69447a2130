"""A job: what was asked for, before anything is loaded. It says once which wishes may stand beside each other.

`resolve` fills in what suits the task, and makes the plan. A run keeps its job in its folder from before the first step
on, so that it can be continued from the folder alone, and its receipt repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from plrvo.accounting import Plan
from plrvo.accounting.named import KINDS
from plrvo.audit.one_run import CanaryKind
from plrvo.noise import Noise, noise_from_dict
from plrvo.validate import InvalidArgument, native

if TYPE_CHECKING:
    from plrvo.tasks.resolved import Resolved

NO_NOISE = "none"  # in the place of a noise: trains without privacy
_WIDTHS = ("noise_multiplier", "scale", "theta")
_PARAMETERS = (*_WIDTHS, "k", "shared")
_ORDER = ("epochs", "batch_size", "restart_every", "separation")
_FIXED_BY_PLAN = ("noise", *_PARAMETERS, "epsilon", "delta", "clip", "sample_rate", "steps", "correlation", *_ORDER)
_OF_AUDIT = ("canary", "coordinates", "confidence", "guesses")
_PRIVATE = (
    *("correlation", *_ORDER, "exact", "grid", "plan", "epsilon", "delta", *_PARAMETERS, "audit", *_OF_AUDIT),
    *("postprocess", "clipping", "grad_sample_mode", "unsafe_diagnostics"),
)
# Where the data lies, and how often and in which portions this machine works: no other run comes of it.
_ANEW = ("data_dir", "physical_batch", "evaluate_every", "checkpoint_every")


@dataclass(frozen=True)
class Job:
    """A task, a noise or a plan, and whatever else was asked for; None leaves the choice to the task.

    `noise` is a kind by name (by default gamma), a noise, or NO_NOISE. A kind is fitted to `epsilon`, or has its
    parameters. `learning_rate` is, for sgd, that of gradients divided by the clip. `audit` is a number of canaries.
    """

    task: str
    model: str | None = None
    trainable: str | None = None
    max_length: int | None = None
    limit: int | None = None
    references: int | None = None
    test_limit: int | None = None
    beams: int | None = None
    top_p: float | None = None
    data: str | None = None
    data_dir: Path | None = None
    noise: str | Noise | None = None
    plan: Plan | None = None
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None
    scale: float | None = None
    k: float | None = None
    theta: float | None = None
    shared: bool = False
    clip: float | None = None
    sample_rate: float | None = None
    steps: int | None = None
    correlation: str | None = None
    epochs: int | None = None
    batch_size: int | None = None
    restart_every: int | None = None
    separation: int | None = None
    learning_rate: float | None = None
    optimizer: str | None = None
    schedule: str | None = None
    momentum: float = 0.9
    weight_decay: float = 0.0
    postprocess: str | None = None
    clipping: str = "flat"
    grad_sample_mode: str = "auto"
    exact: bool = False
    grid: float | None = None
    physical_batch: int | None = None
    seed: int | None = None
    evaluate_every: int = 25
    checkpoint_every: int = 50
    audit: int | None = None
    canary: CanaryKind | None = None
    coordinates: int = 1
    confidence: float = 0.99
    guesses: int | None = None
    unsafe_diagnostics: bool = False

    def __post_init__(self) -> None:
        native(self)
        for name, hint in _hints().items():
            _check_form(name, getattr(self, name), hint)
        _check_together(self.asked)

    @property
    def private(self) -> bool:
        return self.noise != NO_NOISE

    @property
    def asked(self) -> dict[str, Any]:
        """What is not left as it is by default."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    def resolve(self, out: Path, resume: bool = False, kept: dict[tuple[Any, ...], Any] | None = None) -> Resolved:
        """Data, model, plan and settings of the run in the folder `out`. `kept` is that of `plrvo.tasks.catalog`."""
        from plrvo.tasks.resolved import resolve  # torch comes with it

        return resolve(self, out, resume, kept)

    def to_dict(self) -> dict[str, Any]:
        """What was asked for, as plain data; paths hold wherever it is read."""
        return {name: _written(value) for name, value in self.asked.items()}

    @staticmethod
    def read(words: Any) -> Job:
        """The job of words from outside: what `to_dict` wrote, or options that were given, with the plan in a file."""
        if not isinstance(words, Mapping) or words.keys() - _hints().keys():
            raise InvalidArgument("job", words, "an object with the names of " + ", ".join(_hints()))
        if "task" not in words:
            raise InvalidArgument("task", None, "a task to train, or `resume` of a run")
        _check_together(words)  # before a file is opened
        return Job(**{name: _read(name, value) for name, value in words.items()})

    @staticmethod
    def resumed(out: Path, words: Mapping[str, Any]) -> Job:
        """The job of the run in `out`. What is given beside it must be as it was, but for `_ANEW`."""
        from plrvo.tasks.experiment import read_job

        recorded = read_job(out)
        if recorded is None:
            if "task" not in words:
                older = "the task and the options of the run as well: an older version wrote it, and kept none of them"
                raise InvalidArgument("resume", str(out), older)
            return Job.read(words)
        try:
            job = Job.read(recorded)
        except InvalidArgument as error:
            raise InvalidArgument("resume", str(out), f"a run with a valid job ({error})") from None
        given = {name: _read(name, value) for name, value in words.items()}
        for name, value in given.items():
            known = getattr(job, name)
            if name not in _ANEW and value != known:
                expected = "no value" if known is None else _shown(known)
                raise InvalidArgument(name, _shown(words[name]), f"{expected}, as in the run that is resumed")
        return replace(job, **given)


def _check_together(asked: Mapping[str, Any]) -> None:
    """Refuse a wish beside which another one means nothing; whatever is not used is not ignored."""

    def refuse(names: Iterable[str], expected: str) -> None:
        for name in names:
            if asked.get(name) is not None and asked[name] is not False:
                raise InvalidArgument(name, _shown(asked[name]), expected)

    noise = asked.get("noise")
    if isinstance(noise, str) and noise not in (*KINDS, NO_NOISE):
        raise InvalidArgument("noise", noise, "one of " + ", ".join((*KINDS, NO_NOISE)))
    if asked.get("audit") is None:
        refuse(_OF_AUDIT, "`audit` beside it")
    if not asked.get("exact"):
        refuse(("grid",), "no width without `exact`")
    if noise == NO_NOISE:
        nothing = "a noise beside it: without one nothing is claimed, and `noise` none trains without any privacy"
        refuse(_PRIVATE, nothing)
        return
    if asked.get("plan") is not None:
        refuse(_FIXED_BY_PLAN, "no value beside `plan`, which brings its own")
        return
    if asked.get("correlation") is None:
        refuse(_ORDER, "`correlation` beside it")
    else:
        refuse(("sample_rate", "steps", "audit"), "no value beside `correlation`, which has `epochs`")
        if asked.get("clipping") == "l1":
            raise InvalidArgument("clipping", "l1", "flat or per_layer beside `correlation`")
    if isinstance(noise, Noise):
        refuse(_PARAMETERS, "no value beside a noise that has its own")
    elif asked.get("epsilon") is not None:
        refuse(_WIDTHS, "no value beside `epsilon`, which fits the noise's width")
    elif all(asked.get(name) is None for name in _WIDTHS):
        raise InvalidArgument("epsilon", None, "a budget, or the parameters of the noise")


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Job)


def _check_form(name: str, value: Any, hint: Any) -> None:
    kinds = get_args(hint) or (hint,)
    counts = float in kinds and type(value) is int
    if not (counts or (isinstance(value, kinds) and (type(value) is not bool or bool in kinds))):
        words = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise InvalidArgument(name, value, f"a value of the type {words}")


def _written(value: Any) -> Any:
    if isinstance(value, Plan | Noise):
        return value.to_dict()
    return str(value.absolute()) if isinstance(value, Path) else value


def _read(name: str, value: Any) -> Any:
    if name == "plan" and not isinstance(value, Plan):
        return Plan.load(value) if isinstance(value, Path) else Plan.from_dict(value)
    if name == "noise" and isinstance(value, Mapping):
        return noise_from_dict(value)
    if name == "canary" and value in tuple(CanaryKind):
        return CanaryKind(value)
    return Path(value) if name == "data_dir" and isinstance(value, str) else value


def _shown(value: Any) -> Any:
    """A value as a person wrote it: a plan or a noise by its kind, a path by its name."""
    value = value.noise if isinstance(value, Plan) else value
    value = value.kind if isinstance(value, Noise) else value
    return str(value) if isinstance(value, Path | str) else value

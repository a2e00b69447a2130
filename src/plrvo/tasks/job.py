"""A job: what was asked for, before anything is loaded. It says once which wishes may stand beside each other.

`resolve` fills in what suits the task, and makes the plan. A run keeps its job in its folder from before the first step
on, so that it can be continued from the folder alone, and its receipt repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from plrvo.accounting import Clipping, Plan
from plrvo.audit.one_run import CanaryKind
from plrvo.budget.address import Url, address
from plrvo.noise import Noise, Specification, noise_from_dict
from plrvo.noise.specification import AUTO, DESCRIBED, OPTIONS, USUAL, kind_with
from plrvo.records.checkpoint import kept_beside
from plrvo.records.described import check_described
from plrvo.tasks import catalog
from plrvo.validate import InvalidArgument, native, plain_number, positive, positive_integer, probability, rate

if TYPE_CHECKING:
    from plrvo.tasks.resolved import Resolved

MOMENTUM = 0.9  # of sgd, where none is asked for
LARGEST_RATE = 1e37  # optimizers multiply and divide it before it meets parameters of 32 bits
NO_NOISE = "none"  # in the place of a noise: trains without privacy
_ORDER = ("epochs", "batch_size", "restart_every", "separation")
_FIXED_BY_PLAN = ("noise", *OPTIONS, "epsilon", "delta", "clip", "sample_rate", "steps", "correlation", *_ORDER)
_OF_AUDIT = ("canary", "coordinates", "confidence", "guesses")
_PRIVATE = (
    *("correlation", *_ORDER, "exact", "grid", "plan", "epsilon", "delta", *OPTIONS, "audit", *_OF_AUDIT),
    *("postprocess", "clipping", "grad_sample_mode", "unsafe_diagnostics", "budget"),
)
# Where the data and the account lie, and how often and in which portions this machine works: no other run comes of it.
_ANEW = ("data_dir", "budget", "physical_batch", "evaluate_every", "checkpoint_every")
_AT_LEAST_ONE = (
    *("steps", "epochs", "batch_size", "restart_every", "separation", "physical_batch", "evaluate_every"),
    *("checkpoint_every", "audit", "coordinates", "max_length", "limit", "references", "test_limit", "beams"),
    *("views", "layers"),
)
_POSITIVE = ("epsilon", "clip", "grid")


@dataclass(frozen=True)
class Job:
    """A task, a noise or a plan, and whatever else was asked for; None leaves the choice to the task.

    `noise` is a kind by name, a noise, NO_NOISE, or AUTO: the kind that suits the workload and the budget. None stands
    for the kind that `noise_options` belong to, or for AUTO. A kind is fitted to `epsilon`, or described in full;
    `noise_options` has the options of it that were given, as `plrvo.noise.Specification` does. `learning_rate` is, for
    sgd, that of gradients divided by the clip; its `momentum` is MOMENTUM unless another is given. `audit` is a number
    of canaries, `budget` the account that is charged.
    """

    task: str
    model: str | None = None
    trainable: str | None = None
    layers: int | None = None
    max_length: int | None = None
    limit: int | None = None
    references: int | None = None
    test_limit: int | None = None
    beams: int | None = None
    top_p: float | None = None
    views: int | None = None
    data: str | None = None
    data_dir: Path | None = None
    noise: str | Noise | None = None
    noise_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    plan: Plan | None = None
    epsilon: float | None = None
    delta: float | None = None
    budget: Path | Url | None = None
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
    average: float | None = None
    momentum: float | None = None
    weight_decay: float = 0.0
    postprocess: str | None = None
    clipping: str | None = None
    grad_sample_mode: str = "auto"
    bf16: bool = False
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
        if isinstance(self.budget, str):
            object.__setattr__(self, "budget", address(self.budget))
        for name, hint in _hints().items():
            if name != "noise_options":
                _check_form(name, getattr(self, name), hint)
        object.__setattr__(self, "noise_options", MappingProxyType(_given(self.noise_options)))
        if self.noise is None and self.plan is None:  # said in so many words, for whoever reads what was asked for
            object.__setattr__(self, "noise", kind_with(self.noise_options) or AUTO)
        if self.optimizer is not None and self.momentum == MOMENTUM:
            object.__setattr__(self, "momentum", None)  # as if it were not said: recipes do beside any optimizer
        _check_together(self.asked)
        _check_ranges(self)
        if self.plan is not None:
            self.plan.check_clipping(self.clipping)

    @property
    def private(self) -> bool:
        return self.noise != NO_NOISE

    @property
    def asked(self) -> dict[str, Any]:
        """What is not left as it is by default."""
        usual = {field.name: field.default for field in fields(self)} | {"noise_options": {}}
        return {name: value for name, default in usual.items() if (value := getattr(self, name)) != default}

    @property
    def specification(self) -> Specification | Noise:
        """The noise that is asked for; no kind where it is left to the workload."""
        kind = None if self.noise == AUTO else self.noise
        return kind if isinstance(kind, Noise) else Specification(kind, self.noise_options)

    def resolve(self, out: Path, resume: bool = False, kept: dict[tuple[Any, ...], Any] | None = None) -> Resolved:
        """Data, model, plan and settings of the run in the folder `out`. `kept` is that of `plrvo.tasks.catalog`."""
        from plrvo.tasks.resolved import resolve  # torch comes with it

        return resolve(self, out, resume, kept)

    def to_dict(self) -> dict[str, Any]:
        """What was asked for, as plain data; paths hold wherever it is read."""
        return {name: _written(value) for name, value in self.asked.items()}

    @staticmethod
    def read(words: Any) -> Job:
        """The job of words from outside: what `to_dict` wrote, or options that were given, with the plan in a file.

        Options of a noise stand among the others, as they are typed, or in `noise_options`.
        """
        if not isinstance(words, Mapping) or words.keys() - _hints().keys() - OPTIONS.keys():
            raise InvalidArgument("job", words, "an object with the names of " + ", ".join((*_hints(), *OPTIONS)))
        if "task" not in words:
            raise InvalidArgument("task", None, "a task to train, or `resume` of a run")
        typed = {name: value for name, value in words.items() if name in OPTIONS}
        asked = {name: value for name, value in words.items() if name not in OPTIONS}
        if asked.get("budget") is not None:
            asked["budget"] = address(asked["budget"])  # first of all: no error may quote a password
        asked["noise_options"] = {**_given(asked.get("noise_options", {})), **_given(typed)}
        _check_together(asked)  # before a file is opened
        check_momentum(asked.get("optimizer"), asked)
        return Job(**{name: _read(name, value, asked.get("clipping")) for name, value in asked.items()})

    @staticmethod
    def resumed(out: Path, words: Mapping[str, Any]) -> Job:
        """The job of the run in `out`. What is given beside it must be as it was, but for `_ANEW`."""
        kept = kept_beside(out)
        if words and kept.get("job") is not None:
            _continued(out, words, kept["job"])  # refused at once, or read as a whole: torch comes with that
        if words.get("budget") is not None and kept and kept.get("budget") is None:
            account = _shown(address(words["budget"]))  # without its password
            raise InvalidArgument("budget", account, "no value: the run began without an account")
        from plrvo.tasks.settings import read_job

        recorded = read_job(out)
        if recorded is None:
            if "task" not in words:
                older = "the task and the options of the run as well: an older version wrote it, and kept none of them"
                raise InvalidArgument("resume", str(out), older)
            return Job.read(words)
        return _continued(out, words, recorded)


def _continued(out: Path, words: Mapping[str, Any], recorded: Any) -> Job:
    """The job that the run in `out` recorded, with what may be given anew."""
    try:
        job = Job.read({"noise": USUAL, **recorded} if _names_no_noise(recorded) else recorded)
    except InvalidArgument as error:
        raise InvalidArgument("resume", str(out), f"a run with a valid job ({error})") from None
    given = {name: _read(name, value, words.get("clipping", job.clipping)) for name, value in words.items()}
    as_it_was = {**vars(job), **job.noise_options}
    if job.momentum is None and given.get("momentum") == MOMENTUM:
        check_momentum(job.optimizer or catalog.usual(catalog.request_of(job)).defaults.optimizer, given)
        as_it_was["momentum"] = MOMENTUM
    for name, value in given.items():
        known = as_it_was.get(name)
        if name not in _ANEW and value != known:
            expected = "no value" if known is None else _shown(known)
            raise InvalidArgument(name, _shown(words[name]), f"{expected}, as in the run that is resumed")
    return replace(job, **{name: value for name, value in given.items() if name in _ANEW})


def _check_together(asked: Mapping[str, Any]) -> None:
    """Refuse a wish beside which another one means nothing; whatever is not used is not ignored."""

    def refuse(names: Iterable[str], expected: str) -> None:
        for name in names:
            if asked.get(name) is not None and asked[name] is not False:
                raise InvalidArgument(name, _shown(asked[name]), expected)

    noise, of_noise = asked.get("noise"), asked.get("noise_options", {})
    asked = {**asked, **of_noise}
    if isinstance(noise, str) and noise not in (AUTO, *DESCRIBED, NO_NOISE):
        raise InvalidArgument("noise", noise, "one of " + ", ".join((AUTO, *DESCRIBED, NO_NOISE)))
    clipping = Clipping.named(asked.get("clipping") or Clipping.flat)
    of_plan = asked["plan"].clipping if isinstance(asked.get("plan"), Plan) else clipping
    if Clipping.adaptive in (clipping, of_plan):
        others = "flat, per_layer, automatic or l1; this one is an option of make_private"
        raise InvalidArgument("clipping", str(Clipping.adaptive), others)
    if asked.get("exact") and clipping is not Clipping.flat:
        raise InvalidArgument("clipping", str(clipping), "flat beside `exact`, which rounds gradients of an l2 norm")
    if asked.get("audit") is None:
        refuse(_OF_AUDIT, "`audit` beside it")
    else:
        refuse(("views",), "no value beside `audit`: a canary has one view")
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
        if clipping is Clipping.l1:
            raise InvalidArgument("clipping", "l1", "flat or per_layer beside `correlation`")
    if not isinstance(noise, str | None):
        refuse(OPTIONS, "no value beside a noise that has its own")
        return
    if noise == AUTO:
        refuse(OPTIONS, "its kind of `noise` beside it: auto has no options")
    fitted = asked.get("epsilon") is not None
    kind = kind_with(of_noise) if noise in (None, AUTO) else noise
    if kind is not None:
        named = None if noise in (None, AUTO) else kind  # or it follows from the options
        check_described(named, of_noise, fitted=fitted or not of_noise)
    if not fitted and not of_noise:
        raise InvalidArgument(
            "epsilon", None, "the epsilon that this run may cost, such as 3, or the parameters of its noise"
        )


def check_momentum(optimizer: str | None, asked: Mapping[str, Any]) -> None:
    """Refuse a momentum beside an optimizer that has none; an optimizer of None is yet to be chosen."""
    if optimizer not in (None, "sgd") and asked.get("momentum") is not None:
        raise InvalidArgument(
            "momentum", asked["momentum"], f"no value beside `optimizer` {optimizer}, which has its own"
        )


def _check_ranges(job: Job) -> None:
    """Refuse numbers that would fail, or mean nothing, after work has been done."""
    check_momentum(job.optimizer, job.asked)
    if job.learning_rate is not None and not 0 < job.learning_rate < LARGEST_RATE:
        raise InvalidArgument("learning_rate", job.learning_rate, "above 0 and below 1e37")
    if job.momentum is not None and not 0 <= job.momentum < 1:
        raise InvalidArgument("momentum", job.momentum, "at least 0 and below 1")
    if not 0 <= job.weight_decay < LARGEST_RATE:
        raise InvalidArgument("weight_decay", job.weight_decay, "0 or above, and below 1e37")
    if job.seed is not None and job.seed < 0:
        raise InvalidArgument("seed", job.seed, "a whole number, 0 or above")
    given = {name: value for name in _AT_LEAST_ONE if (value := getattr(job, name)) is not None}
    positive_integer(**given)
    positive(**{name: value for name in _POSITIVE if (value := getattr(job, name)) is not None})
    probability(**{name: value for name in ("delta", "average") if (value := getattr(job, name)) is not None})
    if job.sample_rate is not None:
        rate(sample_rate=job.sample_rate)


def _names_no_noise(recorded: Any) -> bool:
    """Whether this is the job of a run from before a job said which noise it wants."""
    return isinstance(recorded, Mapping) and "noise" not in recorded and "plan" not in recorded


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(Job)


def _given(of_noise: Any) -> dict[str, Any]:
    """The options of noises among those that were given, as plain data."""
    if not isinstance(of_noise, Mapping) or of_noise.keys() - OPTIONS.keys():
        raise InvalidArgument("noise_options", of_noise, "an object with the names of " + ", ".join(OPTIONS))
    options = {name: plain_number(value) for name, value in Specification(None, of_noise).options.items()}
    for name, value in options.items():
        _check_form(name, value, bool if OPTIONS[name].is_flag else float)
    return options


def _check_form(name: str, value: Any, hint: Any) -> None:
    kinds = get_args(hint) or (hint,)
    counts = float in kinds and type(value) is int
    if not (counts or (isinstance(value, kinds) and (type(value) is not bool or bool in kinds))):
        words = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise InvalidArgument(name, value, f"a value of the type {words}")


def _written(value: Any) -> Any:
    if isinstance(value, Plan | Noise):
        return value.to_dict()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Url):
        return str(value)  # without its password
    return str(value.absolute()) if isinstance(value, Path) else value


def _read(name: str, value: Any, clipping: str | None) -> Any:
    """A value as a job has it; `clipping` is what older plans do not say."""
    if name == "plan" and not isinstance(value, Plan):
        return Plan.load(value, clipping) if isinstance(value, Path) else Plan.from_dict(value, clipping)
    if name == "noise" and isinstance(value, Mapping):
        return noise_from_dict(value)
    if name == "noise" and isinstance(value, str):
        return str(value)  # the choice of a command
    if name == "canary" and value in tuple(CanaryKind):
        return CanaryKind(value)
    if name == "budget" and value is not None:
        return address(value)
    return Path(value) if name == "data_dir" and isinstance(value, str) else value


def _shown(value: Any) -> Any:
    """A value as a person wrote it: a plan or a noise by its kind, a path by its name."""
    value = value.noise if isinstance(value, Plan) else value
    value = value.kind if isinstance(value, Noise) else value
    return str(value) if isinstance(value, Path | Url | str) else value

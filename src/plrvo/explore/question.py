"""What the page asks: a noise or a budget, and a workload. A link holds all of it as plain numbers, and nothing else.

The names in a link are those of the options of `plrvo account` and `plrvo calibrate`, but for `width`: the size of the
noise in clips, which means the same for every kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import parse_qsl, urlencode

from plrvo import validate
from plrvo.accounting import Workload
from plrvo.noise import Noise, Specification
from plrvo.validate import InvalidArgument, spelled_number

KINDS = ("gaussian", "laplace", "gamma")
_LONGEST = 2000  # characters of a link
_WHOLE = ("steps", "dimension", "examples", "batch")
LIMITS = {  # of sliders and of what may be typed: within them an answer by moments takes a moment
    "width": (0.05, 100.0),
    "epsilon": (0.05, 100.0),
    "k": (2.0, 1e6),
    "sample_rate": (1e-5, 1.0),
    "steps": (1, 1_000_000),
    "examples": (100, 100_000_000),
    "batch": (1, 1_000_000),
    "epochs": (0.01, 1000.0),
    "clip": (1e-3, 1000.0),
    "dimension": (1, 10**12),
    "delta": (1e-12, 0.1),
}


@dataclass(frozen=True)
class Question:
    """One setting of the page. `width` or `epsilon` is given, and either rate and steps, or data, batch and epochs.

    Attributes:
        noise: its kind.
        width: the size of the noise in clips: the noise multiplier of Gaussian noise, E|z| over the clip of others.
        epsilon: a budget, in place of a width: the least noise for it is sought.
        k: shape of Gamma-PLRV noise; no other noise has one.

    >>> Question.read("noise=laplace&epsilon=2&steps=100&sample_rate=0.1").work.steps
    100
    >>> Question.read("delta=2")
    Traceback (most recent call last):
        ...
    plrvo.validate.InvalidArgument: delta=2.0: expected from 1e-12 to 0.1 on this page; commands take others
    """

    noise: str = "gaussian"
    width: float | None = None
    epsilon: float | None = None
    k: float = 1000.0
    sample_rate: float | None = None
    steps: int | None = None
    examples: int | None = None
    batch: int | None = None
    epochs: float | None = None
    clip: float = 1.0
    dimension: int = 26_010
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if self.noise not in KINDS:
            raise InvalidArgument("noise", self.noise, f"one of {', '.join(KINDS)}")
        if (self.width is None) == (self.epsilon is None):
            raise InvalidArgument("width", self.width, "a width or an `epsilon`, one of the two")
        for name in LIMITS:
            value = getattr(self, name)
            if value is not None:
                validate.number(**{name: value})
                _within_limits(name, value)
        by_data = (self.examples, self.batch, self.epochs)
        if (self.sample_rate is None and self.steps is None) == all(value is None for value in by_data):
            raise InvalidArgument(
                "sample_rate", self.sample_rate, "`sample_rate` and `steps`, or `examples`, `batch` and `epochs`"
            )
        work = self.work  # refuses what is no workload
        _within_limits("sample_rate", work.sample_rate)  # what follows from the data, too
        _within_limits("steps", work.steps)

    @property
    def by_data(self) -> bool:
        """Whether rate and steps follow from the size of the data."""
        return self.examples is not None or self.batch is not None or self.epochs is not None

    @property
    def work(self) -> Workload:
        rate, steps = self.sample_rate, self.steps
        if self.by_data:
            validate.required(examples=self.examples, batch=self.batch, epochs=self.epochs)
            validate.positive_integer(examples=self.examples, batch=self.batch)
            validate.positive(epochs=self.epochs)
            if self.batch > self.examples:  # type: ignore[operator]
                raise InvalidArgument("batch", self.batch, f"at most the {self.examples} examples that there are")
            rate = self.batch / self.examples  # type: ignore[operator]
            steps = max(1, round(self.epochs / rate))  # type: ignore[operator]
        validate.required(sample_rate=rate, steps=steps)
        return Workload(sample_rate=rate, steps=steps, clip=self.clip, dimension=self.dimension)  # type: ignore[arg-type]

    @property
    def specification(self) -> Specification:
        """As the options of a command describe the noise; without its width where a budget finds it."""
        return Specification(self.noise, self._shape() if self.width is None else options(self.noise, self.width, self))

    def _shape(self) -> dict[str, float]:
        return {"k": self.k} if self.noise == "gamma" else {}

    def at(self, kind: str, width: float) -> Noise:
        """The noise of a kind and a width in clips, at this clip."""
        return Specification(kind, options(kind, width, self)).noise(self.clip)

    @property
    def query(self) -> str:
        """The link's part behind the question mark; `read` gives an equal question."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        if self.noise != "gamma":
            del given["k"]
        return urlencode({name: value if isinstance(value, str) else repr(value) for name, value in given.items()})

    @staticmethod
    def read(query: object) -> Question:
        """The question of a link; names that are not given have the values of `USUAL`, or none."""
        if not isinstance(query, str):  # what comes over a socket may be anything
            raise InvalidArgument("link", type(query).__name__, "a text")
        if len(query) > _LONGEST:
            raise InvalidArgument("link", query[:40] + "...", f"at most {_LONGEST} characters")
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=None)
        names = [field.name for field in fields(Question)]
        for i, (name, value) in enumerate(pairs):
            if name not in names:
                raise InvalidArgument(name, value, f"a name that the page has: {', '.join(names)}")
            if name in (other for other, _ in pairs[:i]):
                raise InvalidArgument(name, value, "each name once")
        return _with_usual({name: _value(name, text) for name, text in pairs})


def _within_limits(name: str, value: float) -> None:
    low, high = LIMITS[name]
    if not low <= value <= high:
        raise InvalidArgument(name, value, f"from {low:g} to {high:g} on this page; commands take others")


def options(kind: str, width: float, question: Question) -> dict[str, float]:
    """The options of a noise of a width in clips."""
    if kind == "gaussian":
        return {"noise_multiplier": width}
    if kind == "laplace":
        return {"scale": width * question.clip}
    return {"k": question.k, "theta": 1 / ((question.k - 1) * width * question.clip)}  # E|z| = 1/((k - 1) theta)


def _value(name: str, text: str) -> str | float | int:
    if name == "noise":
        return text
    try:
        return spelled_number(int if name in _WHOLE else float, text)
    except ValueError:
        raise InvalidArgument(name, text, "a whole number" if name in _WHOLE else "a number") from None


def _with_usual(given: Mapping[str, str | float | int]) -> Question:
    usual: dict[str, str | float | int] = {}
    if not given.keys() & {"width", "epsilon"}:
        usual["width"] = 1.1
    if not given.keys() & {"examples", "batch", "epochs"}:
        usual |= {"sample_rate": 0.01, "steps": 3000}
    return Question(**{**usual, **given})  # type: ignore[arg-type]


USUAL = Question.read("")

"""The plan: the one place where noise, workload and budget meet. Training, receipts and reports start from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plrvo.accounting.adjacency import Adjacency, Sampling
from plrvo.accounting.bracket import AnyLedger, Epsilon
from plrvo.accounting.by_loss import Entry
from plrvo.accounting.calibration import narrowest
from plrvo.accounting.clipping import Clipping
from plrvo.accounting.correlated import Correlation, CyclicPoisson, ledger_of
from plrvo.accounting.ledger import Ledger
from plrvo.accounting.workload import Workload
from plrvo.files import read_json, write_json
from plrvo.noise import Noise, Specification, noise_from_dict
from plrvo.validate import InvalidArgument, native, of_type, positive, probability

FORMAT = 2  # 1 did not say how gradients are clipped, and has the dimension 1 under an l1 clip
LAST_DIGITS = 1e-9  # relative: by how much what was written may be missed when it is recomputed


@dataclass(frozen=True)
class Plan:
    """A noise, a workload, a budget, and the bracket that certifies it.

    The bracket is computed whenever a plan is made, read or replaced in part: it cannot claim what is not certified.
    `epsilon` is the budget, None for a noise that was given rather than fitted to one. With a `correlation` the noise
    is that of its rows, the sampling rate is 1, and the adjacency is zero-out (theory, section 11). `clipping` says
    which norm of a gradient the workload's clip bounds; the dimension is that of all that is trained under any of them.

    `stages` are the kinds of step that a schedule made of it, with the steps of each: noise and clip are those of the
    first, rate and dimension those of all, and the bracket is that of all of them together.
    """

    noise: Noise
    workload: Workload
    epsilon: float | None
    delta: float
    correlation: Correlation | None = field(default=None, kw_only=True)
    clipping: Clipping = field(default=Clipping.flat, kw_only=True)
    stages: tuple[Entry, ...] = field(default=(), kw_only=True)
    bracket: Epsilon = field(init=False)

    def __post_init__(self) -> None:
        of_type(Noise, noise=self.noise)
        of_type(Workload, workload=self.workload)
        probability(delta=self.delta)
        if self.epsilon is not None:
            positive(epsilon=self.epsilon)
        native(self)
        object.__setattr__(self, "clipping", Clipping.named(self.clipping))
        refuse_unproved(self.clipping, self.noise, self.correlation)
        if self.stages:
            self._check_stages()
        object.__setattr__(self, "bracket", self.ledger(self.workload.steps).epsilon(self.delta))
        # Another version rounds the last digits otherwise.
        self._keeps(None if self.epsilon is None else self.epsilon * (1 + LAST_DIGITS))

    @staticmethod
    def certify(
        noise: Noise,
        workload: Workload,
        delta: float,
        epsilon: float | None = None,
        correlation: Correlation | None = None,
        clipping: str = Clipping.flat,
    ) -> Plan:
        """A plan with its bracket computed; refused where the noise misses the budget."""
        plan = Plan(noise, workload, epsilon, delta, correlation=correlation, clipping=Clipping.named(clipping))
        plan._keeps(epsilon)
        return plan

    @staticmethod
    def fitted(
        shape: Specification | Noise | str,
        workload: Workload,
        delta: float,
        epsilon: float,
        correlation: Correlation | None = None,
        clipping: str = Clipping.flat,
    ) -> Plan:
        """The plan of the narrowest noise of a specification, or of the shape of a noise, that certifies the budget."""
        of_type(Workload, workload=workload)
        charged = _charged(workload, Clipping.named(clipping))
        noise = narrowest(shape, charged, epsilon, delta, correlation)
        return Plan.certify(noise, workload, delta, epsilon, correlation, clipping)

    def _check_stages(self) -> None:
        """Refuse kinds of step that are not this plan with other widths, or not its steps."""
        if self.correlation is not None or self.epsilon is not None:
            raise InvalidArgument("stages", len(self.stages), "none beside a correlation or a budget: one noise")
        noise, first = self.stages[0]
        steps = sum(work.steps for _, work in self.stages)
        alike = all(replace(work, clip=first.clip, steps=first.steps) == first for _, work in self.stages)
        if not alike or (noise, replace(first, steps=steps)) != (self.noise, self.charged):
            raise InvalidArgument("stages", steps, "the plan's steps and rate, and its noise and clip at first")

    def _keeps(self, most: float | None) -> None:
        # All digits: where the last ones decide, a rounded number would refuse 30 for being more than 30.
        if most is not None and self.bracket.certified > most:
            raise InvalidArgument(
                "epsilon", self.epsilon, f"at least {self.bracket.certified!r}, which this noise certifies"
            )

    @property
    def charged(self) -> Workload:
        """The workload that the account has: gradients of l2 norm `clip` in so many coordinates cost the most."""
        return _charged(self.workload, self.clipping)

    def covers(self, dimension: int) -> bool:
        """Whether gradients with so many coordinates cost no more than is charged."""
        return self.clipping.coordinates(dimension) <= self.charged.dimension

    def check_clipping(self, given: str | None) -> None:
        """Refuse a clipping beside the plan that is not its own."""
        if given is not None and Clipping.named(given) is not self.clipping:
            raise InvalidArgument("clipping", str(given), f"{self.clipping}, which the plan is certified for")

    @property
    def batch_share(self) -> float:
        """The share of the data that a nominal batch has: the sampling rate, or one epoch over its steps."""
        return self.correlation.batch_share if self.correlation else self.workload.sample_rate

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.add_or_remove if self.correlation is None else Adjacency.zero_out

    @property
    def sampling(self) -> Sampling:
        if self.correlation is None:
            return Sampling.poisson
        return Sampling.cyclic if isinstance(self.correlation.participation, CyclicPoisson) else Sampling.order

    def ledger(self, taken: int) -> AnyLedger:
        """What has been released after so many of its steps; with stages, after none or all."""
        if self.stages and taken not in (0, self.workload.steps):
            raise InvalidArgument("steps", taken, f"0 or {self.workload.steps}: stages do not say which step came when")
        if self.stages and taken:
            return Ledger(self.stages, layered=self.clipping.layered)
        return ledger_of(self.noise, self.charged, self.correlation, taken, layered=self.clipping.layered)

    def to_dict(self, form: int = FORMAT) -> dict[str, Any]:
        """Plain data, of the present format or the one before.

        The epsilons in it are for the reader, and are computed afresh when it is read.
        """
        says_clipping = form == FORMAT
        return {
            "plan": FORMAT if says_clipping else 1,
            "noise": self.noise.to_dict(),
            "workload": (self.workload if says_clipping else self.charged).to_dict(),
            **({"clipping": str(self.clipping)} if says_clipping else {}),
            **({} if self.correlation is None else {"correlation": self.correlation.to_dict()}),
            **({"stages": Ledger(self.stages).to_list()} if self.stages else {}),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_certified": self.bracket.certified,
            "epsilon_lower": self.bracket.lower,
            "epsilon_published": None if self.bracket.published == math.inf else self.bracket.published,
        }

    @staticmethod
    def from_dict(description: Mapping[str, Any], clipping: str | None = None) -> Plan:
        """The plan that `to_dict` described; its bracket is recomputed and must not exceed what is written.

        `clipping` is what was said beside it: a plan of format 1 does not say it itself, another one has to agree.
        """
        try:
            if type(description["plan"]) is not int or description["plan"] not in (1, FORMAT):
                raise InvalidArgument("plan", description["plan"], f"format {FORMAT}, or 1")
            said = clipping or Clipping.flat if description["plan"] == 1 else description["clipping"]
            noise, workload = noise_from_dict(description["noise"]), Workload.from_dict(description["workload"])
            correlated = description.get("correlation")
            correlation = None if correlated is None else Correlation.from_dict(correlated)
            budget = description["epsilon"]
            delta = description["delta"]
            plan = Plan(
                noise,
                workload,
                budget,
                delta,
                correlation=correlation,
                clipping=Clipping.named(said),
                stages=Ledger.from_list(description.get("stages", [])).entries,
            )
            plan.check_clipping(clipping)
            claimed = float(description["epsilon_certified"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument("plan", sorted(map(str, description)), f"the keys of a plan ({error})") from None
        if not plan.bracket.certified <= claimed * (1 + LAST_DIGITS):  # nor is it NaN
            raise InvalidArgument("plan", claimed, f"a certified epsilon of at least {plan.bracket.certified!r}")
        return plan

    def save(self, path: Path | str) -> None:
        write_json(path, self.to_dict())

    @staticmethod
    def load(path: Path | str, clipping: str | None = None) -> Plan:
        """The plan in a file; `clipping` as in `from_dict`."""
        description = read_json(path, "plan", "a plan file")
        if not isinstance(description, dict) or "receipt" in description:
            raise InvalidArgument("plan", str(path), "a plan, as `plrvo design --save` writes it")
        return Plan.from_dict(description, clipping)


def _charged(work: Workload, clipping: Clipping) -> Workload:
    return replace(work, dimension=clipping.coordinates(work.dimension))


def refuse_unproved(clipping: Clipping, noise: Noise, correlation: Correlation | None) -> None:
    """Refuse a clipping whose worst gradient is not known for this noise."""
    if noise.cell and clipping is not Clipping.flat:
        raise InvalidArgument("clipping", str(clipping), "flat: exact mode rounds gradients whose l2 norm is clipped")
    if clipping is Clipping.adaptive and correlation is not None:
        raise InvalidArgument("clipping", "adaptive", "flat or per_layer: correlated noise has one width over a run")
    if clipping is not Clipping.l1:
        return
    if correlation is not None:
        raise InvalidArgument("clipping", "l1", "flat or per_layer: sensitivities of correlated noise are l2")
    if not noise.worst_in_l1_is_one_hot:
        raise InvalidArgument("clipping", "l1", "flat or per_layer: one-hot is worst in l1 for Laplace noise only")

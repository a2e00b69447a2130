"""What every step of a run releases, with a plan or without one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from plrvo.accounting import Clipping, Plan, Workload
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.correlated import Correlation, ledger_of
from plrvo.accounting.exact import on_grid
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument

_ANY_DELTA = 0.5


@dataclass(frozen=True)
class Mechanism:
    """A noise, what it is added to, and how many steps there may be: `steps` is None where they are only counted.

    With a budget, no step beyond `most_steps` is taken, whoever asks for it; a plan of a noise that was given has
    batches for its steps, and no budget that more of them would exceed.
    """

    noise: Noise
    step: Workload  # of one step
    clipping: Clipping
    steps: int | None = None
    most_steps: int | None = None
    correlation: Correlation | None = None

    def __str__(self) -> str:
        work = self.step
        return f"{self.noise}, clip {work.clip:g}, {self.clipping} clipping, rate {work.sample_rate:.4g}"

    @staticmethod
    def of(plan: Plan) -> Mechanism:
        """That of a plan."""
        steps = plan.workload.steps
        is_bounded = plan.epsilon is not None or plan.correlation is not None
        return Mechanism(
            plan.noise,
            replace(plan.workload, steps=1),
            plan.clipping,
            steps,
            steps if is_bounded else None,
            plan.correlation,
        )

    @staticmethod
    def counted(
        noise: Noise, step: Workload, clipping: Clipping, exact: bool = False, grid: float | None = None
    ) -> Mechanism:
        """One whose steps are counted as they are taken; `exact` on a grid."""
        # What a plan refuses is refused by one of a single step, whose delta nobody asks for.
        one = Plan.certify(noise, step, _ANY_DELTA, clipping=clipping)
        return replace(Mechanism.of(on_grid(one, grid) if exact else one), steps=None)

    @property
    def epoch(self) -> int:
        """The steps in which an example is met once, on average."""
        share = self.correlation.batch_share if self.correlation else self.step.sample_rate
        return max(1, round(1 / share))

    def check_covers(self, dimension: int) -> None:
        """Refuse more coordinates than are charged for."""
        if self.clipping.coordinates(dimension) > self.clipping.coordinates(self.step.dimension):
            raise InvalidArgument(
                "dimension", self.step.dimension, f"at least {dimension}, the module's trainable parameters"
            )

    def ledger(self, taken: int) -> AnyLedger:
        """What so many steps have released."""
        charged = replace(self.step, dimension=self.clipping.coordinates(self.step.dimension), steps=self.steps or 1)
        return ledger_of(self.noise, charged, self.correlation, taken, layered=self.clipping.layered)

    def after(self, steps: int, delta: float) -> Plan:
        """The plan of so many steps of it, as if they had been planned."""
        return Plan.certify(self.noise, replace(self.step, steps=steps), delta, clipping=self.clipping)

    def scheduled(self, ledger: AnyLedger, delta: float) -> Plan:
        """The plan of the steps in a ledger that a schedule of noise or clip has made different, as if planned."""
        stages = tuple(ledger.entries)
        noise, first = stages[0]
        work = replace(self.step, clip=first.clip, steps=ledger.steps)
        return Plan(noise, work, None, delta, clipping=self.clipping, stages=stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, to be compared."""
        return {"noise": self.noise.to_dict(), "step": self.step.to_dict(), "clipping": str(self.clipping)}

"""The accountant that Opacus asks after every step. It reads the optimizer's noise, not a `noise_multiplier`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from opacus.accountants import IAccountant, register_accountant

from plrvo.accounting import Epsilon, Ledger, Workload
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.correlated import read_ledger
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument, counted

_RESUME = "resume with a new engine, which has taken none"


class CertifiedAccountant(IAccountant):
    """Counts every released step in a ledger, with the noise, the clip and the dimension that were really used."""

    def __init__(self) -> None:
        self._ledger: AnyLedger = Ledger()
        self.carried = False  # whether steps were taken over by hand: nobody knows how they were taken
        self.ended = False  # whether an account has been told how many steps there were

    @property
    def ledger(self) -> AnyLedger:
        """What has been released: steps that were taken are not forgotten, and no other ledger takes their place."""
        return self._ledger

    @ledger.setter
    def ledger(self, ledger: AnyLedger) -> None:
        if self._ledger.steps:
            raise InvalidArgument(
                "ledger",
                counted(ledger.steps, "step"),
                f"the one with the {self._ledger.steps} that were taken: {_RESUME}",
            )
        self._ledger = ledger

    @property
    def history(self) -> list[dict[str, Any]]:
        """The ledger as plain data."""
        return self.ledger.to_list()

    def step(
        self, *, noise: Noise, sample_rate: float, clip: float, dimension: int, steps: int = 1, layered: bool = False
    ) -> None:
        if self.ended:
            raise InvalidArgument("steps", len(self) + steps, "no more: the engine has settled with its account")
        ledger: Any = self.ledger.plus(noise, Workload(sample_rate, steps, clip, dimension))
        self._ledger = replace(ledger, layered=ledger.layered or layered)

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """The certified epsilon of all steps so far."""
        return self.ledger.checked(delta).value

    def bracket(self, delta: float) -> Epsilon:
        """The whole bracket of all steps so far."""
        return self.ledger.epsilon(delta)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Opacus asks for it; the optimizer of this package counts its steps by itself."""
        raise InvalidArgument("accountant", "hook", "the engine's own optimizer, which counts its steps by itself")

    def __len__(self) -> int:
        return self.ledger.steps

    @classmethod
    def mechanism(cls) -> str:
        return "plrvo"

    def state_dict(self, destination: Any = None) -> Any:
        state = {} if destination is None else destination
        state.update(history=self.history, mechanism=self.mechanism())
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if not state_dict or state_dict.get("mechanism") != self.mechanism():
            raise InvalidArgument("state_dict", dict(state_dict or {}), "the state of a plrvo accountant")
        self.ledger = read_ledger(state_dict["history"], layered=self._ledger.layered)
        self.carried = self.ledger.steps > 0


register_accountant(CertifiedAccountant.mechanism(), CertifiedAccountant, force=True)

"""The self-test: both attacks find what is there, in samplers that are right and in samplers that are broken."""

import json
from typing import Any

import numpy as np
import pytest

import plrvo
from plrvo.audit import selftest
from plrvo.audit.selftest import self_test
from plrvo.cli.main import main
from plrvo.noise import GridNoise, Keystream

LAPLACE = plrvo.Laplace(1.0)


def found(outcomes: dict[str, Any]) -> dict[str, str]:
    return {name: outcome.audit.verdict for name, outcome in outcomes.items()}


@pytest.mark.parametrize("noise", [LAPLACE, plrvo.GammaPLRV(5.0, 1.0), plrvo.Gaussian(2.0)], ids=repr)
def test_floats_leak_through_their_last_bits_and_integers_do_not(noise: plrvo.Noise) -> None:
    """Each of the four verdicts is wrong with probability 1e-6 at most, or the attack is far from its border."""
    outcomes = self_test(noise, seed=7, scale=0.4)
    assert found(outcomes) == {
        "mechanism_float": "consistent",
        "low_bits_float": "refuted",
        "mechanism_exact": "consistent",
        "low_bits_exact": "consistent",
    }
    assert all(outcome.as_expected for outcome in outcomes.values())
    for name in ("mechanism_float", "mechanism_exact"):  # the audit sees the signal: it is no empty test
        assert outcomes[name].audit.epsilon_audited > outcomes[name].audit.epsilon_claimed / 3


def test_noise_that_is_too_narrow_is_refuted_in_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    true_float, true_grid = plrvo.Laplace.add_to, GridNoise.add_to

    def narrow_float(self: Any, buffers: Any, generator: Any) -> None:
        true_float(self.scaled(0.5), buffers, generator)

    def narrow_grid(self: GridNoise, buffers: Any, generator: Any) -> None:
        true_grid(GridNoise(self.base.scaled(0.5), self.cell), buffers, generator)

    monkeypatch.setattr(plrvo.Laplace, "add_to", narrow_float)
    monkeypatch.setattr(GridNoise, "add_to", narrow_grid)
    outcomes = self_test(LAPLACE, seed=3, scale=0.4)
    assert found(outcomes)["mechanism_float"] == found(outcomes)["mechanism_exact"] == "refuted"
    assert not outcomes["mechanism_exact"].as_expected


def test_an_exact_mode_that_adds_in_floats_is_caught(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The attack on the grid is the attack on floats: it succeeds as soon as the grid is one in name only."""
    true_release = selftest._Setting.release
    monkeypatch.setattr(selftest._Setting, "release", lambda self, exact, seed: true_release(self, False, seed))
    assert main(["selftest", "--noise", "laplace", "--seed", "5", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["verdict"] == "failed"
    assert shown["outcomes"]["low_bits_exact"]["verdict"] == "refuted"
    assert shown["outcomes"]["low_bits_exact"]["as_expected"] is False


def test_last_bits_are_those_of_a_float32() -> None:
    values = np.array([1.0, 1.5, -1.5, 0.75, 1 + 2.0**-23, 2.0**-20 * 3], np.float32)
    kinds = selftest._last_bits(values)
    assert (kinds // 32 - 127).tolist() == [0, 0, 0, -1, 0, -19]
    assert (kinds % 32).tolist() == [23, 22, 22, 22, 0, 22]


def test_a_seed_repeats_the_self_test() -> None:
    told: list[str] = []
    one, other = (self_test(LAPLACE, seed=9, scale=0.05, tell=tell) for tell in (None, told.append))
    assert [o.to_dict() for o in one.values()] == [o.to_dict() for o in other.values()]
    assert len(told) == len(set(told)) == len(one)  # a line for each attack, whoever waits


@pytest.mark.parametrize("arguments", [["--noise", "uniform"], ["--seed", "-1"]])
def test_bad_input_ends_with_one_line(arguments: list[str], capsys: Any) -> None:
    assert main(["selftest", *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    assert main(["selftest"]) == 2
    assert "plrvo[secure]" in capsys.readouterr().err
    with pytest.raises(ValueError, match="cryptography"):
        Keystream()

"""The scripts in examples/ run, and would run under Opacus by changing the import back: with the same clipped sums."""

import contextlib
import io
import re
import types
import warnings
from pathlib import Path

import opacus
import pytest
import torch
from tests.training.helpers import given
from torch.utils.data import DataLoader

import plrvo

FOLDER = Path(__file__).parents[2] / "examples"
IMPORT = "from plrvo import PrivacyEngine"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if IMPORT in path.read_text())


def script(name: str, library: str) -> types.ModuleType:
    """The module of an example, with its engine from one of the two libraries."""
    source = (FOLDER / f"{name}.py").read_text()
    assert source.count(IMPORT) == 1
    module = types.ModuleType(f"{name}_of_{library}")
    exec(compile(source.replace(IMPORT, IMPORT.replace("plrvo", library)), f"{name}.py", "exec"), vars(module))
    return module


def told(example: types.ModuleType) -> list[float]:
    """The epsilons that an example prints over three epochs."""
    output = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(output), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # advice about secure modes and faster ones
        torch.manual_seed(1)
        example.main(epochs=3)
    return [float(found) for found in re.findall(r"epoch \d: .*epsilon (\d+\.\d+)", output.getvalue())]


def test_there_are_examples():
    assert len(NAMES) >= 6


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_for_three_epochs(name):
    epsilons = told(script(name, "plrvo"))
    assert len(epsilons) == 3
    assert 0 < epsilons[0] < epsilons[1] < epsilons[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example_tells_what_it_tells_under_the_other_import(name):
    """Seconds each: most of them go into their accountant."""
    ours, theirs = (told(script(name, library)) for library in ("plrvo", "opacus"))
    assert len(ours) == len(theirs) == 3
    for certified, approximate in zip(ours, theirs, strict=True):
        assert certified == pytest.approx(approximate, abs=0.06)  # theirs allows itself an error of 0.01


@pytest.mark.parametrize("name", NAMES)
def test_clipped_sums_of_an_example_are_those_of_opacus(name):
    """Both engines on the same two batches; theirs without noise, ours with a billionth of a clip."""
    example = script(name, "plrvo")
    data = example.data()
    data = data[0] if isinstance(data, tuple) else data
    sums = []
    for engine, noise_multiplier in ((opacus.PrivacyEngine, 0.0), (plrvo.PrivacyEngine, 1e-9)):
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            torch.manual_seed(2)
            module = example.network()
            model, optimizer, _ = engine().make_private(
                module=module,
                optimizer=torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1),
                data_loader=DataLoader(data, batch_size=16),
                noise_multiplier=noise_multiplier,
                max_grad_norm=0.1,
            )
            for number, batch in enumerate(DataLoader(data, batch_size=16)):
                if number == 2:
                    break
                if engine is plrvo.PrivacyEngine:
                    given(optimizer, 16)
                optimizer.zero_grad()
                example.loss_of(model, batch).backward()
                optimizer.step()
                scale = optimizer.expected_batch_size
                sums.append(torch.cat([p.grad.flatten() * scale for p in module.parameters() if p.requires_grad]))
    assert sums[0].norm() > 0.01
    for theirs, ours in zip(sums[:2], sums[2:], strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)

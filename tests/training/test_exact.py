"""Exact mode: integers whose length is checked, the same weights as floats without noise, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.training.helpers import dimension_of, released, small_data, small_model, take_steps
from torch import nn
from torch.utils.data import DataLoader

import plrvo
from plrvo.audit.receipt import verify
from plrvo.files import write_json
from plrvo.noise import GridNoise, Keystream
from plrvo.training import PoissonSampler, PrivacyEngine
from plrvo.training.receipts import make_receipt
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=dimension_of(small_model()))
NOISES = [plrvo.Laplace(2.0), plrvo.GammaPLRV(k=5.0, theta=0.2), plrvo.Gaussian(2.0)]


def plan(noise: plrvo.Noise = NOISES[0], epsilon: float | None = None) -> plrvo.Plan:
    return plrvo.Plan.certify(noise, WORK, 1e-4, epsilon)


def exact(
    noise: plrvo.Noise = NOISES[0], *, grid: float | None = None, key: int = 1, **kwargs: Any
) -> tuple[PrivacyEngine, Any, Any, Any, Any]:
    """(engine, module, optimizer, loss, loader), as `helpers.private` gives them."""
    module = small_model()
    engine = PrivacyEngine(plan(noise), exact=True, grid=grid)
    arguments: dict[str, Any] = {
        "module": module,
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.1),
        "data_loader": DataLoader(small_data()),
        "noise_generator": Keystream.from_seed(key, "noise"),
        "sample_generator": Keystream.from_seed(key, "batches"),
        **kwargs,
    }
    model, optimizer, loader = engine.make_private(**arguments)
    return engine, model, optimizer, nn.CrossEntropyLoss(reduction=kwargs.get("loss_reduction", "mean")), loader


def weights(module: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def float_mode() -> tuple[PrivacyEngine, Any, Any, Any, Any]:
    """The same training in floating point, on the batches that `exact` draws."""
    module = small_model()
    engine = PrivacyEngine(plan())
    model, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data()),
        grad_sample_mode="hooks",
        sample_generator=Keystream.from_seed(1, "batches"),
    )
    return engine, model, optimizer, nn.CrossEntropyLoss(), loader


@pytest.mark.parametrize("cell", [2.0**-20, 2.0**-12])
def test_without_noise_weights_equal_those_of_floats_within_the_grid(
    cell: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six steps. A step's sum differs by half a cell for each example; floats themselves err by 1e-6 or so."""
    monkeypatch.setattr(GridNoise, "add_to", lambda *_: None)
    monkeypatch.setattr(plrvo.Laplace, "add_to", lambda *_: None)
    found, start = [], weights(small_model())
    for _, model, optimizer, loss, loader in (exact(grid=cell), float_mode()):
        examples = sum(take_steps(model, optimizer, loss, loader))
        found.append(weights(model))
    bound = 0.1 / 20 * cell / 2 * examples + 2e-6
    assert 0 < (found[0] - found[1]).abs().max() <= bound
    assert (found[0] - start).abs().max() > 50 * bound


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_a_release_is_the_integer_sum_and_integer_noise_times_the_cell(noise: plrvo.Noise) -> None:
    """Every released number is a whole number of cells, and the draw is the one that the keystream gives."""
    engine, model, optimizer, loss, _ = exact(noise)
    x, y = small_data().tensors
    assert engine.plan is not None
    cell = engine.plan.noise.cell
    with torch.no_grad():
        model.double()
    out = released(model, optimizer, loss, x[:20].double(), y[:20])
    sizes = [p.numel() for p in optimizer.params]
    drawn = [np.zeros(size, np.int64) for size in sizes]
    engine.plan.noise.add_to(drawn, Keystream.from_seed(1, "noise"))
    signal = out.double() / cell - torch.from_numpy(np.concatenate(drawn))
    assert (signal - signal.round()).abs().max() < 1e-3
    assert signal.square().sum().sqrt() * cell <= 20 * 1.01
    assert signal.abs().max() > 0


def test_noise_has_the_variance_of_its_law_over_an_empty_batch() -> None:
    """Laplace noise of scale 2: the mean of |z| over 628 coordinates within 5 standard errors (false alarm 6e-7)."""
    _, model, optimizer, loss, _ = exact()
    x, y = small_data().tensors
    out = released(model, optimizer, loss, x[:0], y[:0]).abs()
    assert out.mean() == pytest.approx(2.0, abs=5 * 2.0 / len(out) ** 0.5)


def test_physical_batches_add_up_to_the_same_integers() -> None:
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    _, model, optimizer, loss, loader = exact(loss_reduction="sum")
    take_steps(model, optimizer, loss, loader)
    _, other, split, loss, loader = exact(loss_reduction="sum")
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=1, optimizer=split) as parts:
        take_steps(other, split, loss, parts)
    assert split.steps_taken == optimizer.steps_taken == 6
    assert (weights(model) - weights(other)).abs().max() < 1e-4


def test_the_keystreams_coins_fall_with_the_sampling_rate() -> None:
    """100,000 coins within 5 standard errors, false alarm 6e-7; a rate of one takes everybody."""
    sampler = PoissonSampler(size=100_000, sample_rate=0.3, steps=1, generator=Keystream(bytes(32)))
    (batch,) = sampler
    assert abs(len(batch) - 30_000) < 5 * (100_000 * 0.3 * 0.7) ** 0.5
    assert len(next(iter(PoissonSampler(size=50, sample_rate=1.0, steps=1, generator=Keystream())))) == 50
    assert next(iter(PoissonSampler(size=50, sample_rate=1e-30, steps=1, generator=Keystream()))) == []


def test_receipt_states_the_mode_and_verify_recomputes_it(tmp_path: Path) -> None:
    engine, model, optimizer, loss, loader = exact()
    take_steps(model, optimizer, loss, loader)
    file = tmp_path / "model.safetensors"
    save_file({name: p.detach().clone() for name, p in model.named_parameters()}, file)
    receipt = make_receipt(engine, optimizer, file, {"task": "test"}, {})
    assert engine.plan is not None
    assert receipt["arithmetic"].startswith(f"integers on a grid of width {engine.plan.noise.cell!r}")
    assert receipt["plan"]["noise"]["noise"] == "grid"
    path = tmp_path / "receipt.json"
    receipt.write(path)
    assert verify(path) == []
    write_json(path, {**receipt, "arithmetic": "floating point"})
    assert any("arithmetic" in difference for difference in verify(path))
    coarser = json.loads(json.dumps(receipt.document))
    coarser["plan"]["noise"]["cell"] = coarser["ledger"][0]["noise"]["cell"] = 2.0**-6
    write_json(path, coarser)
    assert any("epsilon" in difference for difference in verify(path))


def test_a_checkpoint_holds_no_key_and_resuming_draws_other_noise(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    engine, model, optimizer, loss, loader = exact(noise_generator=None, sample_generator=None)
    steps = iter(loader)
    for _ in range(3):
        x, y = next(steps)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    assert optimizer.generator._key not in path.read_bytes()
    with safe_open(str(path), "pt") as stored:
        assert stored.get_tensor("generator.noise").tolist() == [optimizer.generator.position]
    drawn = []
    for _ in range(2):
        engine, model, optimizer, loss, loader = exact(noise_generator=None, sample_generator=None)
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
        assert optimizer.steps_taken == 3
        x, y = small_data().tensors
        drawn.append(released(model, optimizer, loss, x[:5], y[:5]))
    assert not torch.equal(*drawn)


def test_a_fixed_key_resumes_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    _, model, optimizer, loss, loader = exact()
    take_steps(model, optimizer, loss, loader)
    whole = weights(model)
    engine, model, optimizer, loss, loader = exact()
    for count, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        if count == 3:
            break
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    engine, model, optimizer, loss, loader = exact()
    engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
    take_steps(model, optimizer, loss, loader)
    assert torch.equal(weights(model), whole)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("postprocess", ["score", "clamp"])
def test_postprocessing_works_on_exact_releases(noise: plrvo.Noise, postprocess: str) -> None:
    module = small_model()
    engine = PrivacyEngine(plan(noise), exact=True, postprocess=postprocess)
    model, optimizer, loader = engine.make_private(
        module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1), data_loader=DataLoader(small_data())
    )
    take_steps(model, optimizer, nn.CrossEntropyLoss(), loader)
    assert torch.isfinite(weights(model)).all()


def test_make_private_with_epsilon_fits_the_noise_on_the_grid() -> None:
    module = small_model()
    engine = PrivacyEngine(exact=True)
    _, optimizer, _ = engine.make_private_with_epsilon(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data()),
        target_epsilon=3.0,
        target_delta=1e-4,
        epochs=1,
        max_grad_norm=1.0,
        sample_rate=0.1,
    )
    assert isinstance(optimizer.noise, GridNoise)
    assert engine.plan is not None
    assert 2.99 < engine.plan.bracket.certified <= 3.0


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"clipping": "per_layer"}, "clipping"),
        ({"clipping": "l1"}, "clipping"),
        ({"grad_sample_mode": "ghost"}, "grad_sample_mode"),
        ({"grad_sample_mode": "bookkeeping"}, "grad_sample_mode"),
        ({"noise_generator": torch.Generator()}, "noise_generator"),
        ({"sample_generator": torch.Generator()}, "sample_generator"),
        ({"grid": 0.5}, "grid"),
        ({"grid": 1e-10}, "grid"),
        ({"grid": -1.0}, "grid"),
        ({"noise": plrvo.GammaPLRV(5.0, 0.2, shared=True)}, "noise"),
        ({"noise": plrvo.PLRV(plrvo.UniformSeed(1.0, 2.0))}, "noise"),
        ({"noise": plrvo.GammaPLRV(0.9, 0.2)}, "k"),
    ],
)
def test_what_exact_mode_does_not_cover_is_refused_with_a_reason(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        exact(**arguments)
    assert caught.value.argument == argument


def test_a_grid_without_exact_mode_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="exact=True"):
        PrivacyEngine(plan(), grid=0.1)


def test_a_twister_in_exact_mode_is_refused() -> None:
    module = small_model()
    with pytest.raises(InvalidArgument, match="Keystream"):
        PrivacyEngine(plan(), exact=True).make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=DataLoader(small_data()),
            noise_generator=torch.Generator(),
        )

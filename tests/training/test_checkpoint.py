"""A resumed run equals an uninterrupted one, and a damaged file is refused."""

from functools import partial

import pytest
import torch
from tests.training.helpers import GAMMA, private, small_model, take_steps
from torch import nn

import plrvo
from plrvo.validate import InvalidArgument


def weights_of(model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def run_and_save_at(step: int, path, noise=GAMMA, optimizer_of=None):
    engine, model, optimizer, loss, loader = private(noise, steps=9)
    if optimizer_of:
        optimizer.original_optimizer = optimizer_of(model.parameters())
    for i, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        if i == step:
            engine.save_checkpoint(path=path, module=model, optimizer=optimizer, extra={"note": [1, 2.5]})
    return engine, model, optimizer


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


@pytest.mark.parametrize("noise", [GAMMA, plrvo.GammaPLRV(4.0, 0.3, shared=True), plrvo.Gaussian(0.3)], ids=str)
@pytest.mark.parametrize("optimizer_of", [adam, momentum])
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, noise, optimizer_of):
    path = tmp_path / "checkpoint.safetensors"
    engine, model, _ = run_and_save_at(4, path, noise, optimizer_of)
    resumed, again, optimizer, loss, loader = private(noise, steps=9, seed=77)
    optimizer.original_optimizer = optimizer_of(again.parameters())
    assert resumed.load_checkpoint(path=path, module=again, optimizer=optimizer) == {"note": [1, 2.5]}
    assert len(resumed.accountant) == 4
    assert len(take_steps(again, optimizer, loss, loader)) == 5
    assert torch.equal(weights_of(model), weights_of(again))
    assert resumed.accountant.ledger == engine.accountant.ledger


@pytest.mark.parametrize("damage", ["cut", "flip-weight", "flip-record", "empty", "not-a-checkpoint", "absent"])
def test_a_damaged_checkpoint_is_refused_and_says_so(tmp_path, damage):
    path = tmp_path / "checkpoint.safetensors"
    run_and_save_at(4, path)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip-weight":
        content[-100] ^= 1
    elif damage == "flip-record":
        content[content.index(b"steps_taken") + 16] ^= 1
    elif damage == "empty":
        content = bytearray()
    elif damage == "not-a-checkpoint":
        content = bytearray(b"hello")
    path.unlink() if damage == "absent" else path.write_bytes(bytes(content))
    engine, model, optimizer, _, _ = private(steps=9)
    with pytest.raises(InvalidArgument, match=r"checkpoint\.safetensors"):
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)


def test_a_checkpoint_of_another_plan_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    run_and_save_at(4, path)
    engine, model, optimizer, _, _ = private(plrvo.Laplace(0.5), steps=9)
    with pytest.raises(InvalidArgument, match="another"):
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)


@pytest.mark.parametrize("extra", [{"best": torch.zeros(2)}, [float("nan")], object()])
def test_extra_is_what_json_can_hold(tmp_path, extra):
    engine, model, optimizer, _, _ = private(steps=9)
    with pytest.raises(InvalidArgument, match=r"extra.*JSON"):
        engine.save_checkpoint(path=tmp_path / "checkpoint", module=model, optimizer=optimizer, extra=extra)
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    run_and_save_at(4, path)
    module = small_model()
    module[-1] = torch.nn.Linear(144, 4)
    module.append(torch.nn.Identity())
    module.insert(0, torch.nn.Identity())
    engine, model, optimizer, _, _ = private(steps=9, module=module)
    with pytest.raises(InvalidArgument, match="model"):
        engine.load_checkpoint(path=path, module=model, optimizer=optimizer)


OPTIMIZERS = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam")  # a closure, sparse gradients
)  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_an_optimizer_of_torch_has_saved_it_loads(tmp_path, name):
    def prepared():
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4, bias=False))  # Muon takes matrices only
        engine, model, optimizer, loss, loader = private(module=model, steps=3, mode="bookkeeping")
        optimizer.original_optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        return engine, model, optimizer, loss, loader

    engine, model, optimizer, loss, loader = prepared()
    for x, y in loader:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
        break
    engine.save_checkpoint(path=tmp_path / "c", module=model, optimizer=optimizer)
    engine, model, optimizer, loss, loader = prepared()
    engine.load_checkpoint(path=tmp_path / "c", module=model, optimizer=optimizer)
    take_steps(model, optimizer, loss, loader)
    assert optimizer.steps_taken == 3


@pytest.mark.parametrize("made_first", [True, False], ids=["schedule first", "checkpoint first"])
def test_a_schedule_may_be_made_before_or_after_the_checkpoint_is_loaded(tmp_path, made_first):
    path = tmp_path / "checkpoint.safetensors"
    engine, model, optimizer, loss, loader = private(GAMMA, steps=4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2)
    x, y = next(iter(loader))
    loss(model(x), y).backward()
    optimizer.step()
    schedule.step()
    engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
    resumed, again, other, loss, loader = private(GAMMA, steps=4, seed=77)
    if made_first:
        torch.optim.lr_scheduler.StepLR(other, step_size=2)
    resumed.load_checkpoint(path=path, module=again, optimizer=other)
    torch.optim.lr_scheduler.StepLR(other, step_size=2, last_epoch=0)
    assert torch.equal(weights_of(model), weights_of(again))
    assert len(take_steps(again, other, loss, loader)) == 3


@pytest.mark.parametrize("before", [None, True])
def test_a_run_goes_on_with_the_form_of_steps_that_it_began_with(tmp_path, before):
    """One pass over memory or several: the last bits differ, and files of earlier versions say None."""
    path = tmp_path / "checkpoint"
    run_and_save_at(4, path, optimizer_of=partial(torch.optim.Adam, lr=0.01, fused=before))
    engine, model, optimizer, *_ = private(steps=9)
    optimizer.original_optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=not before)
    engine.load_checkpoint(path=path, module=model, optimizer=optimizer)
    assert optimizer.param_groups[0]["fused"] is before


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "optimizer_of", [partial(torch.optim.SGD, lr=0.1, momentum=0.9), partial(torch.optim.Adam, lr=0.01, amsgrad=True)]
)
def test_moments_lie_in_memory_as_their_parameters_do(tmp_path, optimizer_of, fused):
    """Fused steps take both in the order of memory; a run of channels_last weights went on with shuffled moments."""

    def run(engine, model, optimizer, loss, loader, steps):
        for _, (x, y) in zip(range(steps), loader, strict=False):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()

    def begun(seed=1):
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(64, 4))
        with torch.no_grad():
            for i, p in enumerate(module.parameters()):
                p.copy_(torch.linspace(-0.2, 0.2 + i / 100, p.numel()).view(p.shape))
        run = private(steps=6, seed=seed, module=module.to(memory_format=torch.channels_last))
        run[2].original_optimizer = optimizer_of(run[1].parameters(), fused=fused)
        return run

    whole = begun()
    run(*whole, 6)
    half = begun()
    run(*half, 3)
    half[0].save_checkpoint(path=tmp_path / "c", module=half[1], optimizer=half[2])
    resumed = begun(seed=77)
    resumed[0].load_checkpoint(path=tmp_path / "c", module=resumed[1], optimizer=resumed[2])
    run(*resumed, 3)
    assert torch.equal(weights_of(resumed[1]), weights_of(whole[1]))

"""Trains a small model in each mode, alone or as one of several processes that torchrun started."""

import sys
from typing import Any

import pytest
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from safetensors.torch import save_file
from tests.training.helpers import dimension_of, seeded, small_data, small_model, take_steps
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import PrivacyEngine
from plrvo.training.schedulers import ExponentialGradClip
from plrvo.training.sharded import RefusedElsewhere
from plrvo.validate import InvalidArgument

MODES = ("hooks", "ghost", "bookkeeping")
NOISE = plrvo.GammaPLRV(k=5.0, theta=0.4)


def optimizer_of(module: torch.nn.Module, apart: bool) -> Any:
    """With a state; `apart`: each process has a part of it."""
    settings = {"lr": 0.2, "momentum": 0.5}
    if apart:
        from torch.distributed.optim import ZeroRedundancyOptimizer  # warns, on behalf of its neighbours

        return ZeroRedundancyOptimizer(module.parameters(), optimizer_class=torch.optim.SGD, **settings)
    return torch.optim.SGD(module.parameters(), **settings)


def train(mode: str, several: bool, apart: bool = False) -> dict[str, torch.Tensor]:
    """The weights after six steps, what hooks are shown, the steps in the account, and how large the state here is."""
    module = small_model()
    work = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=dimension_of(module))
    engine = PrivacyEngine(plrvo.Plan.certify(NOISE, work, 1e-4), postprocess="score")
    original = optimizer_of(module, apart)
    wrapped = DifferentiallyPrivateDistributedDataParallel(module) if several else module
    model, optimizer, *criterion, loader = engine.make_private(
        module=wrapped,
        optimizer=original,
        data_loader=DataLoader(small_data()),
        grad_sample_mode=mode,
        noise_generator=seeded(1),
        # As from the operating system, which seeds every process differently: the first one's counts.
        sample_generator=seeded(2 if not several or torch.distributed.get_rank() == 0 else 77),
    )
    shown: list[torch.Tensor] = []
    optimizer.attach_step_hook(lambda o: shown.append(torch.cat([p.grad.flatten() for p in o.params])))
    take_steps(model, optimizer, criterion[0] if criterion else torch.nn.CrossEntropyLoss(), loader)
    if apart:
        refuses_checkpoints(engine, model, optimizer)
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    state = (original.optim if apart else original).state
    here = sum(t.numel() for of_one in state.values() for t in of_one.values() if isinstance(t, torch.Tensor))
    counts = {"steps": torch.tensor(len(engine.accountant)), "state": torch.tensor(here)}
    return {"weights": weights, "shown": torch.stack(shown), **counts}


def refuses_steps_apart(fully: bool) -> None:
    """A schedule that one process moves alone, and a step that one of them cannot enter: no process adds noise."""
    module = small_model()
    if fully:
        fully_shard(module)
    else:
        module = DifferentiallyPrivateDistributedDataParallel(module)
    engine, first = PrivacyEngine(), torch.distributed.get_rank() == 0
    model, optimizer, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=DataLoader(small_data(), batch_size=8),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    batches, before = iter(loader), [p.detach().clone() for p in model.parameters()]

    def step() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    schedule = ExponentialGradClip(optimizer, gamma=0.1)
    if first:
        schedule.step()
    with pytest.raises(InvalidArgument, match="in another process"):
        step()
    if not first:
        schedule.step()
    if first:
        engine.accountant.step = _fails
    with pytest.raises(OSError if first else RefusedElsewhere):
        step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def _fails(**entry: Any) -> None:
    raise OSError("no room for the entry")


def refuses_checkpoints(engine: PrivacyEngine, model: Any, optimizer: Any) -> None:
    for call in (engine.save_checkpoint, engine.load_checkpoint):
        with pytest.raises(InvalidArgument, match="ZeroRedundancyOptimizer"):
            call(path="never", module=model, optimizer=optimizer)


def main() -> None:
    torch.distributed.init_process_group("gloo")
    found = {f"{mode}.{name}": value for mode in MODES for name, value in train(mode, several=True).items()}
    found |= {f"apart.{name}": value for name, value in train("auto", several=True, apart=True).items()}
    for fully in (False, True):
        refuses_steps_apart(fully)
    for name in [name for name in found if name.endswith((".state", ".shown"))]:
        of_each = [torch.zeros_like(found[name]) for _ in range(2)]
        torch.distributed.all_gather(of_each, found[name])
        found[name] = torch.stack(of_each)
    if torch.distributed.get_rank() == 0:
        save_file(found, sys.argv[1])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

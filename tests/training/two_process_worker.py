"""Trains a small model in each mode, alone or as one of several processes that torchrun started."""

import sys

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from safetensors.torch import save_file
from tests.training.helpers import dimension_of, seeded, small_data, small_model, take_steps
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import PrivacyEngine

MODES = ("hooks", "ghost", "bookkeeping")
NOISE = plrvo.GammaPLRV(k=5.0, theta=0.4)


def train(mode: str, several: bool) -> dict[str, torch.Tensor]:
    """The weights after six steps, and the steps in the account."""
    module = small_model()
    work = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=dimension_of(module))
    engine = PrivacyEngine(plrvo.Plan.certify(NOISE, work, 1e-4), postprocess="score")
    wrapped = DifferentiallyPrivateDistributedDataParallel(module) if several else module
    model, optimizer, *criterion, loader = engine.make_private(
        module=wrapped,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.5),
        data_loader=DataLoader(small_data()),
        grad_sample_mode=mode,
        noise_generator=seeded(1),
        # As from the operating system, which seeds every process differently: the first one's counts.
        sample_generator=seeded(2 if not several or torch.distributed.get_rank() == 0 else 77),
    )
    take_steps(model, optimizer, criterion[0] if criterion else torch.nn.CrossEntropyLoss(), loader)
    weights = torch.cat([p.detach().flatten() for p in module.parameters()])
    return {"weights": weights, "steps": torch.tensor(len(engine.accountant))}


def main() -> None:
    torch.distributed.init_process_group("gloo")
    found = {f"{mode}.{name}": value for mode in MODES for name, value in train(mode, several=True).items()}
    if torch.distributed.get_rank() == 0:
        save_file(found, sys.argv[1])
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

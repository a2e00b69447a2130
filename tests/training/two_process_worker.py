"""Trains a small model, in one process or as one of several that torchrun started, and saves the weights."""

import json
import sys

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from safetensors.torch import save_file
from tests.training.helpers import dimension_of, seeded, small_data, small_model, take_steps
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import PrivacyEngine


def main() -> None:
    mode, noise, out = sys.argv[1:]
    several = torch.distributed.is_torchelastic_launched()
    if several:
        torch.distributed.init_process_group("gloo")
    module = small_model()
    work = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=dimension_of(module))
    engine = PrivacyEngine(
        plrvo.Plan.certify(plrvo.noise_from_dict(json.loads(noise)), work, 1e-4), postprocess="score"
    )
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
    if not several or torch.distributed.get_rank() == 0:
        weights = torch.cat([p.detach().flatten() for p in module.parameters()])
        save_file({"weights": weights, "steps": torch.tensor(len(engine.accountant))}, out)
    if several:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

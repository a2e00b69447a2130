"""Several processes train one model: torchrun --nproc-per-node 2 examples/ddp.py

Each process computes its part of a batch; noise is added once. Random numbers stand in for a data set.
"""

import math

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import plrvo

DELTA = 1e-4


def data() -> Dataset:
    x = torch.randn(320, 20, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] > 0).long())


def main(epochs: int = 3) -> None:
    distributed.init_process_group("gloo")  # nccl on GPUs
    torch.manual_seed(0)  # the same weights everywhere
    model = DifferentiallyPrivateDistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2)))
    engine = plrvo.PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
        data_loader=DataLoader(data(), batch_size=64),  # of all processes together
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if distributed.get_rank() == 0:
            print(f"epoch {epoch + 1}: epsilon {math.ceil(100 * engine.get_epsilon(DELTA)) / 100}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

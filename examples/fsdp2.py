"""Processes that each have a share of the model: torchrun --nproc-per-node 2 examples/fsdp2.py

FSDP2 gathers the weights of a block while it computes. Gradients, noise and the optimizer's state are in shares, too.
Random numbers stand in for a data set.
"""

import math

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, TensorDataset

import plrvo

DELTA = 1e-4


def data() -> Dataset:
    x = torch.randn(320, 20, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] > 0).long())


def network() -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(nn.Linear(20, 64), *blocks, nn.Linear(64, 2))


def here(tensors: list[torch.Tensor]) -> int:
    """Bytes in this process."""
    return sum(t.to_local().nbytes for t in tensors)


def main(epochs: int = 3) -> None:
    distributed.init_process_group("gloo")  # nccl on GPUs
    torch.manual_seed(0)  # the same weights everywhere
    model = network()
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))  # "cuda" on GPUs
    for block in model[1:4]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    engine = plrvo.PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=adam,
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
    parameters = list(optimizer.params)
    state = [t for of_one in adam.state.values() for t in of_one.values() if t.ndim]
    sizes = here(parameters), here([p.grad for p in parameters]), here(state)
    total = 4 * sum(p.numel() for p in parameters)
    rank = distributed.get_rank()
    print(
        f"process {rank}: {sizes[0]} of {total} bytes of weights, {sizes[1]} of gradients, {sizes[2]} of Adam's state"
    )
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

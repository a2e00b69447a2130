"""Federated averaging by hand: what is protected is a client with all its data, and a step is a round.

Clients train from the server's weights, and send how far they came. The server clips that, adds noise, and counts the
round. Random numbers stand in for the clients' data.
"""

import copy
import math
import random

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import plrvo
from plrvo.noise import Keystream

CLIENTS, RATE, CLIP, DELTA = 100, 0.2, 1.0, 1e-3
NOISE = plrvo.Gaussian(1.0 * CLIP)


def clients() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(20, 5, generator=generator) for _ in range(CLIENTS)]
    return [(x, x.sum(dim=1, keepdim=True)) for x in inputs]


def update_of(client: tuple[torch.Tensor, torch.Tensor], model: nn.Module) -> torch.Tensor:
    """How far some steps on one client's data lead, as one vector."""
    own = copy.deepcopy(model)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.mse_loss(own(client[0]), client[1]).backward()
        optimizer.step()
    return (parameters_to_vector(own.parameters()) - parameters_to_vector(model.parameters())).detach()


def clipped(update: torch.Tensor) -> torch.Tensor:
    """At most CLIP long; one that is not finite would show in the sum, and counts for nothing."""
    update = update.double()
    norm = float(update.norm())
    return update * min(1.0, CLIP / (norm + 1e-9)) if norm < 1e30 else torch.zeros_like(update)


def main(rounds: int = 3) -> None:
    model, members = nn.Linear(5, 1), clients()
    weights = parameters_to_vector(model.parameters()).detach()
    source, keystream, ledger = random.SystemRandom(), Keystream(), plrvo.Ledger()
    for number in range(rounds):
        drawn = [member for member in members if source.random() < RATE]
        total = torch.zeros(len(weights), dtype=torch.float64)
        for member in drawn:
            total += clipped(update_of(member, model))
        NOISE.add_to([total], keystream)  # once, also where nobody was drawn
        weights = weights + (total / (RATE * CLIENTS)).float()  # by a public number, not by how many were drawn
        vector_to_parameters(weights, model.parameters())
        ledger = ledger.plus(NOISE, plrvo.Workload(sample_rate=RATE, steps=1, clip=CLIP, dimension=len(weights)))
        print(f"round {number + 1}: epsilon {math.ceil(100 * ledger.certified(DELTA).value) / 100}")


if __name__ == "__main__":
    main()

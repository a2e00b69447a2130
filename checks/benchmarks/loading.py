"""A batch of tensors in memory, by one index for all examples, against one that is collated example by example."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from checks.benchmarks.timing import interleaved, shown
from plrvo.noise import Keystream
from plrvo.training.private_loader import private_loader
from plrvo.training.sampler import PoissonSampler

_SIZE, _BATCH, _TURNS = 20_000, 256, 101


def run() -> list[dict[str, object]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait count as computing
    try:
        return _measured()
    finally:
        torch.set_num_threads(threads)


def _measured() -> list[dict[str, object]]:
    dataset = TensorDataset(torch.randn(_SIZE, 784), torch.randint(0, 10, (_SIZE,)))
    ways: dict[str, Any] = {"index": None, "example": lambda examples: default_collate(examples)}
    batches = {way: _batches(DataLoader(dataset, collate_fn=collate)) for way, collate in ways.items()}
    contenders = {way: (lambda found=found: next(found)) for way, found in batches.items()}
    times = interleaved(contenders, _TURNS, time.process_time)
    return [
        {
            "what": f"computing time of a batch of {_BATCH} x 784 numbers in memory, one thread, drawn and fetched by "
            "index, against one collated by example",
            "ours": shown(times["index"].median),
            "theirs": shown(times["example"].median),
            "ratio": f"{times['index'].median / times['example'].median:.2f}x the time",
        }
    ]


def _batches(loader: DataLoader[Any]) -> Iterator[Any]:
    sampler = PoissonSampler(size=_SIZE, sample_rate=_BATCH / _SIZE, steps=2 * _TURNS, generator=Keystream(bytes(32)))
    return iter(private_loader(loader, sampler, batch_first=True))


if __name__ == "__main__":
    for row in run():
        print(f"{row['what']}: {row['ours']}, {row['theirs']}  {row['ratio']}")

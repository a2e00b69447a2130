"""Trains small models in one process, or in one of several that share out their parameters (`fully_shard`)."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.utils.batch_memory_manager import BatchMemoryManager
from safetensors.torch import save_file
from tests.training.helpers import dimension_of, seeded, small_data, small_model
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader

import plrvo
from plrvo.training import PrivacyEngine
from plrvo.training.receipts import make_receipt
from plrvo.training.sharded import RefusedElsewhere
from plrvo.validate import InvalidArgument

DELTA, STEPS, WORDS = 1e-4, 5, 40
SHARED_SCALE = plrvo.GammaPLRV(k=40.0, theta=0.05, shared=True)


def grouped() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        blocks = [nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 4)) for _ in range(2)]
        return nn.Sequential(nn.Conv2d(1, 4, 3), *blocks, nn.Flatten(), nn.Linear(144, 4))


def gpt2() -> nn.Module:
    """Two blocks, and an embedding that is the head as well."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(6)
        sizes = {"vocab_size": WORDS, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2, "use_cache": False}
        none = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        return GPT2LMHeadModel(GPT2Config(**sizes, **none, bos_token_id=0, eos_token_id=0)).train()


class Texts(torch.utils.data.Dataset):
    """Sequences of 4 to 10 words, none of which is 0."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, i: int) -> Tensor:
        return torch.randint(1, WORDS, (4 + i % 7,), generator=seeded(i))


def padded(texts: list[Tensor]) -> tuple[Tensor, Tensor]:
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    return ids, (ids != 0).long()


def loss_of_images(model: Any, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def loss_of_texts(model: Any, batch: Any) -> Tensor:
    ids, mask = batch
    logits = model(input_ids=ids, attention_mask=mask).logits
    by_token = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return ((by_token * mask[:, 1:]).sum(dim=1) / mask[:, 1:].sum(dim=1).clamp(min=1)).mean()


def every_layer(module: nn.Module) -> None:
    for m in module.modules():
        if m is not module and any(True for _ in m.parameters(recurse=False)):
            fully_shard(m)
    fully_shard(module)


def every_block(module: Any) -> None:
    blocks = module.transformer.h if hasattr(module, "transformer") else module[1:3]
    for block in blocks:
        fully_shard(block)
    fully_shard(module)


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    shard: Callable[[nn.Module], None]
    clipping: str = "flat"
    noise: plrvo.Noise = plrvo.GammaPLRV(k=5.0, theta=0.4)
    sample_rate: float = 0.1
    mode: str = "auto"
    options: dict[str, Any] = {}  # noqa: RUF012


CASES = {
    "layers": Case(small_model, every_layer, options={"postprocess": "score"}),
    "blocks": Case(grouped, every_block, "per_layer", SHARED_SCALE, options={"average": 0.9}),
    "empty": Case(small_model, fully_shard, "automatic", sample_rate=0.008, mode="ghost"),
    "texts": Case(gpt2, every_block),
}


def whole(t: Any) -> Tensor:
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach()


def here(tensors: Any) -> int:
    """Bytes in this process."""
    return sum(t.to_local().nbytes if hasattr(t, "to_local") else t.nbytes for t in tensors)


def engine_of(module: nn.Module, case: Case, **options: Any) -> tuple[PrivacyEngine, Any, Any, Any]:
    first = not distributed.is_initialized() or distributed.get_rank() == 0
    work = plrvo.Workload(sample_rate=case.sample_rate, steps=STEPS, clip=1.0, dimension=dimension_of(module))
    plan = plrvo.Plan.certify(case.noise, work, DELTA, clipping=case.clipping)
    engine = PrivacyEngine(plan, **case.options)
    data = DataLoader(Texts(), collate_fn=padded) if case.make is gpt2 else DataLoader(small_data())
    # As from the operating system, which seeds every process differently: the first one's counts.
    generators = {"noise_generator": seeded(1 if first else 78), "sample_generator": seeded(2 if first else 77)}
    model, optimizer, *_, loader = engine.make_private(
        module=module,
        optimizer=torch.optim.Adam(module.parameters(), lr=0.05),
        data_loader=data,
        grad_sample_mode=case.mode,
        steps_per_epoch=STEPS,
        **generators | options,
    )
    return engine, model, optimizer, loader


def train(name: str, several: bool) -> dict[str, Tensor]:
    """Weights, their average, what hooks were shown, and the sizes of batches."""
    case = CASES[name]
    module = case.make()
    if several:
        case.shard(module)
    engine, model, optimizer, loader = engine_of(module, case)
    loss_of = loss_of_texts if case.make is gpt2 else loss_of_images
    shown, sizes = list[Tensor](), list[int]()
    optimizer.attach_step_hook(lambda o: shown.append(torch.cat([whole(p.grad).flatten() for p in o.params])))
    for batch in loader:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        sizes.append(len(batch[0]))
        with torch.no_grad():  # leaves what it has gathered
            model(batch[0])
    with engine.averaged():
        average = torch.cat([whole(p).flatten() for p in optimizer.params])
    return {
        "weights": torch.cat([whole(p).flatten() for p in optimizer.params]),
        "average": average,
        "shown": torch.stack(shown),
        "sizes": torch.tensor(sizes),
        "steps": torch.tensor(len(engine.accountant)),
    }


def memory(shard: bool) -> Tensor:
    """Bytes in this process of weights, gradients and the state of Adam, after a step."""
    module: Any = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    fully_shard(module) if shard else None
    wrapped = module if shard else DifferentiallyPrivateDistributedDataParallel(module)
    optimizer = torch.optim.Adam(module.parameters())
    generator = seeded(4)
    data = [(torch.randn(64, generator=generator), i % 4) for i in range(40)]
    model, noisy, loader = PrivacyEngine().make_private(
        module=wrapped,
        optimizer=optimizer,
        data_loader=DataLoader(data, batch_size=20),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for batch in loader:
        noisy.zero_grad()
        loss_of_images(model, batch).backward()
        noisy.step()
    parameters = list(module.parameters())
    state = [t for of_one in optimizer.state.values() for t in of_one.values() if t.ndim]
    return torch.tensor([here(parameters), here(p.grad for p in parameters), here(state)])


def receipt(folder: Path) -> None:
    """Of one run of two processes, which the first writes."""
    module = small_model()
    every_layer(module)
    engine, model, optimizer, loader = engine_of(module, CASES["layers"], noise_generator=None, sample_generator=None)
    for batch in loader:
        optimizer.zero_grad()
        loss_of_images(model, batch).backward()
        optimizer.step()
    weights = {name: whole(p).contiguous() for name, p in module.state_dict().items()}  # all processes gather
    with pytest.raises(InvalidArgument, match="fully_shard"):
        engine.save_checkpoint(path=folder / "never", module=model, optimizer=optimizer)
    if distributed.get_rank() == 0:
        save_file(weights, folder / "model.safetensors")
        made = make_receipt(engine, optimizer, folder / "model.safetensors", {"name": "random"})
        made.write(folder / "receipt.json")


def noise_alone() -> Tensor:
    """What a step releases where no example has a gradient, with keys of the operating system."""
    module = nn.Sequential(nn.Linear(100, 200))
    fully_shard(module)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
        data_loader=DataLoader([(torch.zeros(100), 0)] * 20, batch_size=20),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        loss_reduction="sum",
    )
    for x, _ in loader:
        (model(x) * 0).sum().backward()
        optimizer.step()
    return torch.cat([whole(p.grad).flatten() for p in module.parameters()])


class Own(nn.Module):
    """Has a parameter beside its layers, or uses that of a layer."""

    def __init__(self, beside: bool) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(64, 4), nn.Linear(4, 4)
        if beside:
            self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        if hasattr(self, "scale"):
            return self.head(self.linear(x.flatten(1)) * self.scale)
        return self.head(nn.functional.linear(x.flatten(1), self.linear.weight))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 4, batch_first=True), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x[:, 0])[0][:, -1])


def refused(module: nn.Module, match: str, **changes: Any) -> None:
    with pytest.raises(InvalidArgument, match=match):
        engine_of(module, CASES["layers"]._replace(**changes))


def refusals() -> None:
    """Of what cannot be sound, in every process, before anything is wrapped."""
    for module in (Own(beside=True), Recurrent()):
        every_layer(module)
        refused(module, "have a rule for book-keeping, with fully_shard")
    module = small_model()
    fully_shard(module[0])
    refused(module, r"4\.weight|1\.weight \(not shared out\)")
    module = small_model()
    fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    refused(module, "no mp_policy")
    module = small_model()
    fully_shard(module)
    refused(module, "bookkeeping, or auto, with fully_shard", mode="hooks")
    refused(module, "what book-keeping can do", clipping="l1", noise=plrvo.Laplace(1.0))


def first_batch(module: nn.Module, **options: Any) -> tuple[Any, Any, Any]:
    every_layer(module)
    _, model, optimizer, loader = engine_of(module, CASES["layers"], **options)
    return model, optimizer, loader


def refusals_in_a_pass() -> None:
    """One process refuses, and both stop."""
    model, _, loader = first_batch(Own(beside=False))
    with pytest.raises(InvalidArgument, match="gradient"):
        loss_of_images(model, next(iter(loader))).backward()

    model, optimizer, loader = first_batch(small_model())
    batch = next(iter(loader))
    if distributed.get_rank() == 0:
        model._module[2].register_forward_hook(lambda m, args, output: output - output.mean(dim=0))
        with pytest.raises(InvalidArgument, match=r"2 \(ReLU\) mixes them"):
            model(batch[0])
    else:
        with pytest.raises(RefusedElsewhere, match="another process"):
            model(batch[0])
    assert isinstance(model._module, FSDPModule)
    assert all(hasattr(p, "device_mesh") for p in model._module.parameters())  # nothing whole is left

    model, optimizer, loader = first_batch(small_model())
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer) as parts:
        loss_of_images(model, next(iter(parts))).backward()
        with pytest.raises(InvalidArgument, match="whole batches with fully_shard"):
            optimizer.step()


def main() -> None:
    distributed.init_process_group("gloo")
    out = Path(sys.argv[1])
    found = {f"{name}.{what}": t for name in CASES for what, t in train(name, several=True).items()}
    found |= {"memory.sharded": memory(shard=True), "memory.whole": memory(shard=False), "noise": noise_alone()}
    receipt(out)
    refusals()
    refusals_in_a_pass()
    for name in [name for name in found if name.startswith("memory") or name.endswith((".sizes", ".shown"))]:
        of_each = [torch.zeros_like(found[name]) for _ in range(2)]
        distributed.all_gather(of_each, found[name])
        found[name] = torch.stack(of_each)
    if distributed.get_rank() == 0:
        save_file(found, out / "found.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

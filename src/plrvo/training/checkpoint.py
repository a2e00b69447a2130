"""One file that holds everything a run needs to go on: tensors and JSON in a safetensors file, never a pickle.

The file carries a digest of its content, so that a flipped bit or a cut file is refused instead of continued from.

It is secret: with the state of the noise's generator anyone can compute the noise of the steps to come, and of those
before. Only its owner may read it, and once no step is left it holds no generator any more.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from plrvo.accounting import Plan
from plrvo.files import open_regular, parse_json, write_bytes
from plrvo.noise import Keystream
from plrvo.records.isolation import Isolation, weakest
from plrvo.training import checkpoint_checks as checks
from plrvo.training.ftrl import setup as ftrl
from plrvo.training.mechanism import Mechanism
from plrvo.training.sampler import PoissonSampler
from plrvo.training.unwrap import unwrapped
from plrvo.validate import InvalidArgument, counted

if TYPE_CHECKING:
    from plrvo.training.engine import PrivacyEngine

_FORMAT = 1
_ZIP, _OPACUS = b"PK\x03\x04", b"privacy_accountant_state_dict"  # what a checkpoint of Opacus's begins with, and holds


def save(path: Path, engine: PrivacyEngine, module: nn.Module, optimizer: Any, extra: Any) -> None:
    """Write the state of a run."""
    if engine.workers:
        raise InvalidArgument(
            "num_workers", engine.workers, "0 in a run that keeps checkpoints: workers draw batches ahead of the steps"
        )
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidArgument(
            "extra", type(extra).__name__, "what JSON can hold: numbers, texts, lists and dicts of them, no tensors"
        ) from None
    if optimizer.draws.waiting:
        raise InvalidArgument(
            "save_checkpoint", "a batch without a step", "optimizer.step() for the batch that the loader gave, first"
        )
    tensors: dict[str, torch.Tensor] = {}
    optimizer_state = _flatten(optimizer.state_dict(), "optimizer", tensors)
    for name, tensor in unwrapped(module).state_dict().items():
        tensors[f"module.{name}"] = tensor
    tensors["generator.global"] = torch.get_rng_state()  # dropout draws from it
    if engine.sampler is None or engine.sampler.remaining != 0:
        tensors["generator.noise"] = _stream_state(optimizer.generator)
    if isinstance(engine.sampler, PoissonSampler) and engine.sampler.remaining != 0:
        tensors["generator.sample"] = _stream_state(engine.sampler.generator)
    record = {
        "format": _FORMAT,
        "plan": engine.plan.to_dict() if engine.plan else None,
        "mechanism": engine.mechanism.to_dict() if engine.mechanism and not engine.plan else None,
        "ledger": engine.accountant.history,
        "steps_taken": optimizer.steps_taken,
        "remaining": engine.sampler.remaining if engine.sampler else 0,
        "into_epoch": engine.sampler.into_epoch if engine.sampler else 0,
        "correlated": ftrl.save_state(engine.sampler, optimizer, tensors),
        "schedules": {name: schedule.state_dict() for name, schedule in optimizer.schedules.items()},
        "adaptive": optimizer.adapted,
        "optimizer": optimizer_state,
        "seeded": engine.seeded,
        "isolation": engine.isolation,
        "extra": extra,
    }
    # Tied weights share memory, which safetensors refuses; copies are equal, and loading ties them again.
    content = {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}
    write_bytes(path, _pack(content, record), secret=True)


def load(path: Path, engine: PrivacyEngine, module: nn.Module, optimizer: Any) -> Any:
    """Bring a freshly prepared run to the state in the file; refuses a file of another plan, or mechanism.

    The engine must not have taken steps: the file's ledger would replace them, and the budget would be spent twice.
    All of the file is checked first (`checkpoint_checks`), and the ledger is loaded before the weights: whatever goes
    wrong, nothing was trained that is not counted.
    """
    if len(engine.accountant):
        raise InvalidArgument(
            "resume",
            str(path),
            f"a new engine; this one has released {counted(len(engine.accountant), 'step')} already",
        )
    tensors, record = _unpack(path)
    mechanism, sampler = engine.mechanism, engine.sampler
    if mechanism is None or sampler is None:
        raise InvalidArgument("resume", str(path), "make_private before load_checkpoint, as for the run that wrote it")
    if not _is_of(engine, mechanism, record):
        raise InvalidArgument("resume", str(path), "a checkpoint of this plan; this one was written by another")
    try:
        checks.check_record(record, mechanism, optimizer, sampler.epoch)
        state = {name.removeprefix("module."): t for name, t in tensors.items() if name.startswith("module.")}
        checks.check_weights(state, unwrapped(module))
        checks.check_streams(tensors, record["remaining"], sampler, optimizer)
        optimizer_state = _unflatten(record["optimizer"], tensors)
        checks.check_optimizer(optimizer_state, optimizer)
        _stand_as(engine, record)
        engine.accountant.load_state_dict({"mechanism": engine.accountant.mechanism(), "history": record["ledger"]})
        engine.accountant.carried = False  # the file says how its steps were taken
        ftrl.load_state(record.get("correlated"), record["steps_taken"], sampler, optimizer, tensors)
        if isinstance(sampler, PoissonSampler):
            if "generator.sample" in tensors:
                _set_stream_state(sampler.generator, tensors["generator.sample"])
            sampler.remaining = record["remaining"]
        sampler.go_on_at(record.get("into_epoch", 0))
        if "generator.noise" in tensors:
            _set_stream_state(optimizer.generator, tensors["generator.noise"])
        torch.set_rng_state(tensors["generator.global"])
        if optimizer.adapted is not None:
            optimizer.adapt_to(record["adaptive"]["clip"])
        for name, schedule in optimizer.schedules.items():
            schedule.load_state_dict(record["schedules"][name])
        unwrapped(module).load_state_dict(state)
        optimizer.load_state_dict(optimizer_state)
        _lay_out(optimizer)
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        said = error.expected if isinstance(error, InvalidArgument) else str(error) or type(error).__name__
        raise InvalidArgument(
            "resume", str(path), f"a checkpoint of this model and this run ({' '.join(said.split())})"
        ) from None
    return record["extra"]


def _lay_out(optimizer: Any) -> None:
    """What is kept for a parameter lies in memory as the parameter does (channels_last): files hold numbers alone.

    Fused steps go through both in the order of memory, and would take the moments of other numbers.
    """
    for p, kept in optimizer.state.items():
        for name, t in kept.items():
            if isinstance(t, torch.Tensor) and t.shape == p.shape and t.stride() != p.stride():
                kept[name] = torch.empty_like(p, dtype=t.dtype, device=t.device, requires_grad=False).copy_(t)


def _stand_as(engine: PrivacyEngine, record: dict[str, Any]) -> None:
    """The steps of the file count as they were taken, and the run as the weakest of its steps.

    The first files say neither; a seed that one of them was written with is the caller's to give again.
    """
    engine.seeded |= record.get("seeded", False)
    before = Isolation(record.get("isolation", Isolation.tried))
    engine.isolation = weakest(engine.isolation, before) if record["steps_taken"] else engine.isolation


def _is_of(engine: PrivacyEngine, mechanism: Mechanism, record: dict[str, Any]) -> bool:
    plan, recorded = engine.plan, record.get("plan")
    if plan is None:
        return recorded is None and record.get("mechanism") == mechanism.to_dict()
    return isinstance(recorded, dict) and _asked(recorded) in (_asked(plan.to_dict()), _asked(plan.to_dict(form=1)))


def _asked(plan: dict[str, Any]) -> dict[str, Any]:
    """What a plan fixes, without the epsilons that it comes to: those have become tighter since, and may again."""
    return {name: value for name, value in plan.items() if not name.startswith("epsilon_")}


def _stream_state(generator: torch.Generator | Keystream) -> torch.Tensor:
    """Of a keystream, how far it has been used: never its key, which would tell all noise that is still to come."""
    return torch.tensor([generator.position]) if isinstance(generator, Keystream) else generator.get_state()


def _set_stream_state(generator: torch.Generator | Keystream, state: torch.Tensor) -> None:
    if isinstance(generator, Keystream):
        generator.skip_to(int(state))  # a fixed key goes on where it was; a fresh key is fresh anywhere
    else:
        generator.set_state(state)


def read_plan(path: Path, clipping: str | None) -> Plan | None:
    """The plan of the run that wrote the checkpoint, certified anew; `clipping` as in `Plan.from_dict`."""
    recorded = _unpack(path)[1].get("plan")
    return Plan.from_dict(recorded, clipping) if isinstance(recorded, dict) else None


def read_extra(path: Path) -> Any:
    """What the run that wrote the checkpoint put beside its state."""
    return _unpack(path)[1].get("extra")


def _pack(tensors: dict[str, torch.Tensor], record: dict[str, Any]) -> bytes:
    text = json.dumps(record, allow_nan=False)
    return save_tensors(tensors, metadata={"record": text, "digest": _digest(tensors, text)})


def _unpack(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    try:
        with open_regular(path) as file:
            content = file.read()
    except MemoryError:
        raise InvalidArgument("resume", str(path), "a checkpoint that fits into memory") from None
    except OSError as error:
        raise InvalidArgument("resume", str(path), f"a readable checkpoint ({error.strerror})") from None
    try:
        tensors = load_tensors(content)
        length = int.from_bytes(content[:8], "little")
        metadata = parse_json(content[8 : 8 + length])["__metadata__"]
        text, digest = metadata["record"], metadata["digest"]
        whole = digest == _digest(tensors, text)
        record = parse_json(text)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        whole, record = False, {}
    if content.startswith(_ZIP) and _OPACUS in content:
        raise InvalidArgument(
            "resume",
            str(path),
            "a checkpoint of plrvo; this one is Opacus's, whose steps nobody certified. Its weights go into the module "
            "before make_private, torch.load(path)['module_state_dict'], and what they cost comes on top",
        )
    if not whole or not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise InvalidArgument("resume", str(path), "a whole checkpoint; this one is cut short or damaged")
    return tensors, record


def _digest(tensors: dict[str, torch.Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def _flatten(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """The value with every tensor replaced by a reference, and dict keys that are numbers marked as such."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, dict):
        return {"items": [[key, _flatten(item, f"{name}.{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"list": [_flatten(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]}
    return value


def _unflatten(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "items" in value:
        return {key: _unflatten(item, tensors) for key, item in value["items"]}
    return [_unflatten(item, tensors) for item in value["list"]]

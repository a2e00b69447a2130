"""The file that a private trainer's receipt is about: one that this run wrote, with the numbers that it trained.

Which file `save_model` writes is a matter of the model (and of who overrides it), and a folder may hold another run's.
So nothing is believed by its name: a file is the run's if it has the bytes of every trained parameter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors
from torch import nn

from plrvo.files import write_bytes
from plrvo.records.folder import JOURNAL, RECEIPT
from plrvo.records.weights import Tensors
from plrvo.tasks.trainer_checkpoints import saved
from plrvo.training.receipts import weights_digest
from plrvo.validate import InvalidArgument

# What a Trainer saves: the adapters of a peft model, or the model; and what is written where it saves neither.
WEIGHTS, TRAINED = ("adapter_model.safetensors", "model.safetensors"), "trained.safetensors"
# Also in pieces, and as older versions wrote them.
_ANY_WEIGHTS = ("*model*.safetensors", "*model*.bin", "*model*.index.json", TRAINED)


def refuse_occupied(folder: Path) -> None:
    """A folder with a run in it, or with weights: beside this run's receipt they would look like its own."""
    found = [name for name in (RECEIPT, JOURNAL) if (folder / name).exists()]
    found += sorted(file.name for pattern in _ANY_WEIGHTS for file in folder.glob(pattern))
    found += [checkpoint.name for checkpoint in saved(folder)]
    if found:
        raise InvalidArgument(
            "output_dir",
            str(folder),
            f"a folder of its own for each run, or resume_from_checkpoint=True: this one holds {found[0]}",
        )


def written(folder: Path, model: nn.Module) -> tuple[Path, list[str]]:
    """The file with the trained weights, and what it calls them, in the model's order.

    Where none of those that a Trainer writes has them (it was saved in pieces, in halves or merged), one is written.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    for name in WEIGHTS:
        found = names_in(folder / name, trained)
        if found is not None:
            return folder / name, found
    write_bytes(folder / TRAINED, save_tensors({name: p.detach().clone() for name, p in trained.items()}))
    return folder / TRAINED, list(trained)


def names_in(path: Path, trained: dict[str, Any]) -> list[str] | None:
    """A tensor of the file for each parameter, with its bytes; None if one has none.

    Names are no proof: libraries rename what they save. They choose between equal tensors, such as biases of zeros.
    """
    held = Tensors.read(path)
    if held is None:
        return None
    sizes = {p.numel() for p in trained.values()}
    free: dict[str, list[str]] = {}
    for name, count in held.counts.items():
        if count in sizes:
            free.setdefault(held.digest([name]) or "", []).append(name)
    found = []
    for name, p in trained.items():
        alike = free.get(weights_digest([p]), [])
        if not alike:
            return None
        best = max(alike, key=lambda other: _common(name, other))
        alike.remove(best)
        found.append(best)
    return found


def _common(name: str, other: str) -> int:
    """How many parts two names have in common: a wrapper puts some between, or leaves some out."""
    return len(set(name.split(".")) & set(other.split(".")))

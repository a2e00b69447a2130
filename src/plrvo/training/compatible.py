"""Layers that are known to mix examples, or to hide what belongs to each: Opacus's list, without recurrent layers."""

from __future__ import annotations

from opacus.utils.module_utils import clone_module, trainable_modules
from opacus.validators import ModuleValidator
from torch import nn

from plrvo.training.attention import with_masks
from plrvo.training.clipping.recurrent import is_recurrent
from plrvo.validate import InvalidArgument

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_SHOWN = 3  # layers of a kind: a deep network has dozens of the same kind


def mixing(module: nn.Module) -> list[str]:
    """A line for each layer that cannot be trained."""
    return [f"{name} ({type(layer).__name__}) {_why(layer)}" for name, layer in _mixing(module)]


def _mixing(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return [
        (name or "module", m)
        for name, m in trainable_modules(module)
        if type(m) in ModuleValidator.VALIDATORS and not is_recurrent(m) and ModuleValidator.VALIDATORS[type(m)](m)
    ]


def _why(layer: nn.Module) -> str:
    """What is wrong with a layer, and what to use; Opacus has a paragraph on each."""
    if isinstance(layer, _BATCH_NORMS):
        return "normalises an example by the others of its batch: use GroupNorm"
    if isinstance(layer, _INSTANCE_NORMS):
        return "keeps statistics of examples: use track_running_stats=False"
    return (
        "computes all examples in one piece, where the gradient of each cannot be seen: Opacus has one with the same "
        "weights that computes in steps"
    )


def refuse_mixing(module: nn.Module) -> None:
    """Name the layers, once for each kind what is wrong with them, and what replaces them."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, layer in _mixing(module):
        kinds.setdefault((type(layer).__name__, _why(layer)), []).append(name)
    if kinds:
        said = "; ".join(_of_kind(kind, why, names) for (kind, why), names in kinds.items())
        raise InvalidArgument(
            "module",
            type(module).__name__,
            f"layers that keep examples apart, but {said}. "
            "model = PrivacyEngine.get_compatible_module(model) puts others in their place; the optimizer comes after",
        )


def _of_kind(kind: str, why: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} ({kind}) {why}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more} ({kind}): each {why}"


def compatible(module: nn.Module) -> nn.Module:
    """A copy in which Opacus's replacements stand for the layers that cannot be trained."""
    module = clone_module(module)
    for name, m in list(trainable_modules(module)):
        if type(m) in ModuleValidator.FIXERS and not is_recurrent(m):
            new = ModuleValidator.FIXERS[type(m)](m).to(next(m.parameters()).device)
            module = ModuleValidator._replace_sub_module(root=module, sub_module_name=name, new_sub_module=new)
    refuse_mixing(module)
    return with_masks(module)

"""Layers that are known to mix examples, or to hide what belongs to each: Opacus's list, without recurrent layers."""

from __future__ import annotations

from opacus.utils.module_utils import clone_module, trainable_modules
from opacus.validators import ModuleValidator
from torch import nn

from plrvo.training.attention import with_masks
from plrvo.training.clipping.recurrent import is_recurrent
from plrvo.validate import InvalidArgument


def mixing(module: nn.Module) -> list[str]:
    """A line for each layer that cannot be trained."""
    return [
        f"{name or 'module'} ({type(m).__name__}): {' '.join(str(error).split())}"
        for name, m in trainable_modules(module)
        if type(m) in ModuleValidator.VALIDATORS and not is_recurrent(m)
        for error in ModuleValidator.VALIDATORS[type(m)](m)
    ]


def refuse_mixing(module: nn.Module) -> None:
    """Name the layers, and what replaces them."""
    if found := mixing(module):
        raise InvalidArgument(
            "module",
            type(module).__name__,
            "layers that keep examples apart; PrivacyEngine.get_compatible_module(module) replaces them where it can "
            f"({'; '.join(found)})",
        )


def compatible(module: nn.Module) -> nn.Module:
    """A copy in which Opacus's replacements stand for the layers that cannot be trained."""
    module = clone_module(module)
    for name, m in list(trainable_modules(module)):
        if type(m) in ModuleValidator.FIXERS and not is_recurrent(m):
            new = ModuleValidator.FIXERS[type(m)](m).to(next(m.parameters()).device)
            module = ModuleValidator._replace_sub_module(root=module, sub_module_name=name, new_sub_module=new)
    refuse_mixing(module)
    return with_masks(module)

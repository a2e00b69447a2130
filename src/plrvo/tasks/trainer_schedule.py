"""The state of a learning-rate schedule as plain data, for a checkpoint, which holds no pickle.

JSON has no infinity (the best value of a schedule that looks at a metric, before its first one), no tuples, and no keys
that are numbers. What is a function, or an object, is made again and not kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from plrvo.validate import InvalidArgument

_SEQUENCES: dict[str, Any] = {"tuple": tuple, "deque": deque}


class _NotKept:
    """In the place of what is made again."""


def kept_state(schedule: Any) -> dict[str, Any]:
    """What JSON can hold of it, by name."""
    plain = {name: _plain(value) for name, value in schedule.state_dict().items()}
    return {name: value for name, value in plain.items() if value is not _NotKept}


def load_state(schedule: Any, kept: Mapping[str, Any]) -> None:
    """Go on as the schedule was when it was kept; what was not kept stays as it is."""
    own = schedule.state_dict()
    try:
        schedule.load_state_dict({**own, **{name: _merged(own.get(name), value) for name, value in kept.items()}})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidArgument(
            "resume_from_checkpoint", type(schedule).__name__, f"the schedule of the run that is resumed ({error})"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:  # learning rates may be tensors
        return {"tensor": _plain(value.item())}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return _listed(value)
    for name, kind in _SEQUENCES.items():
        if type(value) is kind:
            listed = _listed(value)
            return listed if listed is _NotKept else {name: listed}
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        items = [[key, _plain(item)] for key, item in value.items()]
        return {"items": [[key, item] for key, item in items if item is not _NotKept]}
    return _NotKept


def _listed(values: Any) -> Any:
    listed = [_plain(value) for value in values]
    return _NotKept if any(value is _NotKept for value in listed) else listed


def _merged(own: Any, kept: Any) -> Any:
    """What was kept, in the place of what the schedule has there; of a dict only some names may have been."""
    if isinstance(kept, list):
        others = own if isinstance(own, list | tuple) and len(own) == len(kept) else [None] * len(kept)
        return [_merged(other, value) for other, value in zip(others, kept, strict=True)]
    if not isinstance(kept, dict):
        return kept
    ((name, value),) = kept.items()
    if name == "items":
        before = own if isinstance(own, dict) else {}
        return {**before, **{key: _merged(before.get(key), item) for key, item in value}}
    if name == "tensor":
        number = _merged(None, value)
        return torch.as_tensor(number, dtype=own.dtype if isinstance(own, torch.Tensor) else None)
    return float(value) if name == "float" else _SEQUENCES[name](_merged(None, value))

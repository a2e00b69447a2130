"""From a plain dict back to the object it describes, with errors that name what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from plrvo.noise.base import Noise
from plrvo.noise.registry import NOISES, SEEDS
from plrvo.noise.seeds import Seed
from plrvo.validate import InvalidArgument


def noise_from_dict(description: Mapping[str, Any]) -> Noise:
    """The noise that `noise.to_dict()` described.

    Args:
        description: plain data, with the kind under `noise` and the parameters by their names.

    Returns:
        The noise, of the class that its kind names.

    Raises:
        InvalidArgument: for a kind that there is not, and for parameters that it does not have.
    """
    return _build("noise", NOISES, description)


def seed_from_dict(description: Mapping[str, Any]) -> Seed:
    """The seed that `seed.to_dict()` described."""
    return _build("seed", SEEDS, description)


def _build(role: str, kinds: Mapping[str, type[Any]], description: Mapping[str, Any]) -> Any:
    if not isinstance(description, Mapping):
        raise InvalidArgument(role, description, f"a mapping with the key {role!r}")
    kind = description.get(role)
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidArgument(role, kind, "one of " + ", ".join(sorted(kinds)))
    arguments = {key: value for key, value in description.items() if key != role}
    known = {field.name: field for field in fields(kinds[kind])}
    for key in arguments:
        if key not in known:
            raise InvalidArgument(role, dict(description), f"no key {key!r}; {kind} takes {', '.join(known)}")
    if "base" in arguments:
        arguments["base"] = noise_from_dict(arguments["base"])
    if "seed" in arguments:
        arguments["seed"] = seed_from_dict(arguments["seed"])
    if "seeds" in arguments:
        arguments["seeds"] = tuple(seed_from_dict(item) for item in arguments["seeds"])
    try:
        return kinds[kind](**arguments)
    except TypeError:
        raise InvalidArgument(role, dict(description), f"the parameters {', '.join(known)}") from None

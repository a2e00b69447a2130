"""Where noise and batches come from: a cipher's keystream, unless the caller asks for a run that can be repeated.

The Mersenne twister behind `torch.Generator` is linear: from the noise of one step, which unused coordinates show, its
state follows, and with it all noise to come. So it is no default for anything that privacy rests on. A generator that
the caller passes is taken, and the run counts as seeded.
"""

from __future__ import annotations

from typing import Any

import torch

from plrvo.noise import Keystream
from plrvo.validate import InvalidArgument


def generator_for(exact: bool, generator: Any, argument: str) -> Any:
    """The caller's generator, of the kind that the mode takes; a new keystream where there is none."""
    if generator is None:
        return Keystream()
    if isinstance(generator, Keystream) or (isinstance(generator, torch.Generator) and not exact):
        return generator
    wanted = "a plrvo.noise.Keystream" if exact else "a torch.Generator or a plrvo.noise.Keystream"
    raise InvalidArgument(argument, type(generator).__name__, f"{wanted}, or None")


def same_in_all_processes(generator: Any) -> Any:
    """The first process's generator: batches drawn apart could hold an example twice, at twice the clip."""
    if isinstance(generator, Keystream):
        own = generator.fixed, generator.fingerprint if generator.fixed else generator.words(4).tobytes()
        fixed, sent = _from_the_first(own)
        if fixed != generator.fixed or (fixed and sent != own[1]):
            raise InvalidArgument("generator", "a fixed key", "the same key in every process, or none in all of them")
        return generator if fixed else Keystream.from_shared_key(sent)
    generator.set_state(_from_the_first(generator.get_state()))
    return generator


def _from_the_first(content: Any) -> Any:
    """As an object, which goes through whatever connects the processes: NCCL sends no tensor of the CPU."""
    sent = [content]
    torch.distributed.broadcast_object_list(sent, src=0)
    return sent[0]

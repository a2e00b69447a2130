"""How long tests wait: only a hang is a failure, and a busy machine takes its time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

HANGS = 900  # seconds, for other processes


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What takes no more of a core's time than this, however many others want it."""
    before = time.process_time()
    yield
    assert time.process_time() - before < seconds

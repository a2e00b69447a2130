"""Two processes that a launcher starts, as users start theirs."""

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import HANGS

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ACCELERATE = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0")
_ROOT = Path(__file__).parents[1]


def two_processes(*command: str | Path, launcher: tuple[str, ...] = TORCHRUN) -> str:
    """What two processes of `command` print, each with one thread, and with the tests to import from."""
    paths = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *map(str, command)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout

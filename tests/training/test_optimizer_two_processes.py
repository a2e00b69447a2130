"""Two processes (gloo) release what one process releases: the same batches, the noise added once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

WORKER = Path(__file__).with_name("two_process_worker.py")


def run(processes: int, mode: str, noise: str, out: Path) -> dict[str, torch.Tensor]:
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = [sys.executable, str(WORKER), mode, noise, str(out)]
    if processes > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [*launcher, *command[1:]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return load_file(out)


@pytest.mark.parametrize("mode", ["hooks", "ghost", "bookkeeping"])
def test_two_processes_give_the_weights_of_one(tmp_path, mode):
    """Same seeds, so equality up to the order of summation: stronger than equality in distribution.

    Noise added by both processes, or divided by their number, or batches of other sizes, would each move the weights by
    many times the tolerance (the noise has size 0.5 at sum scale).
    """
    one = run(1, mode, json.dumps({"noise": "gamma", "k": 5.0, "theta": 0.4}), tmp_path / "one.safetensors")
    two = run(2, mode, json.dumps({"noise": "gamma", "k": 5.0, "theta": 0.4}), tmp_path / "two.safetensors")
    assert one["steps"].item() == two["steps"].item() == 6
    torch.testing.assert_close(two["weights"], one["weights"], atol=2e-6, rtol=1e-4)

"""Commands where only the light part is installed: numpy, scipy and what shows results."""

import subprocess
import sys

import pytest
from tests.records.receipts import KINDS

# As if these were not installed: an import of them fails as it would.
_LIGHT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("torch", "opacus", "safetensors", "transformers", "peft", "sklearn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from plrvo.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def receipt(tmp_path_factory):
    return KINDS["poisson"](tmp_path_factory.mktemp("light") / "run")


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", _LIGHT, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_a_receipt_is_verified(receipt):
    done = run("verify", receipt)
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified" in done.stdout


def test_a_run_is_reported(receipt, tmp_path):
    done = run("report", receipt.parent, "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_the_mechanism_of_a_receipt_is_audited(receipt):
    done = run("audit", "mechanism", "--receipt", receipt, "--trials", 4000, "--json")
    assert done.returncode == 0, done.stderr
    assert '"verdict": "consistent"' in done.stdout


@pytest.mark.parametrize("command", [("train",), ("audit", "one-run")])
def test_training_says_what_to_install(command, tmp_path):
    done = run(*command, "digits", "--epsilon", "3", *(["--out", tmp_path / "run"] if command == ("train",) else []))
    assert done.returncode == 2
    assert (
        done.stderr
        == f"plrvo: {' '.join(command)}: expected torch, which is not installed: pip install 'plrvo[train]', "
        "or '.[train]' in a clone\n"
    )
    assert not (tmp_path / "run").exists()

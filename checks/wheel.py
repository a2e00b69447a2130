"""Build the wheel, install it into an empty environment, and ask there what needs no PyTorch. `make dist` runs it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ["--sample-rate", "0.01", "--steps", "300"]


def build(folder: Path) -> Path:
    """The wheel of this checkout."""
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("plrvo-*.whl")
    return wheel


def trained(folder: Path) -> Path:
    """A run of a few steps, made here, to be verified and shown there."""
    words = ["--model", "logistic", "--noise", "laplace", "--epsilon", "2", "--steps", "2", "--out", str(folder)]
    _run(sys.executable, "-m", "plrvo", "train", "digits", *words)
    return folder


def check(wheel: Path, run: Path, place: Path) -> None:
    """Install the wheel beside nothing, and use it."""
    venv.create(place / "empty", with_pip=True)
    python = str(place / "empty" / "bin" / "python")
    constraints = ["-c", str(ROOT / "constraints.txt")]
    _run(python, "-m", "pip", "install", "--quiet", *constraints, f"plrvo[report] @ {wheel.resolve().as_uri()}")
    _run(python, "-c", "import importlib.util as u, plrvo; assert u.find_spec('torch') is None")
    page = str(place / "page.html")
    for words in (
        ["account", "--noise-multiplier", "1.1", *WORK],
        ["calibrate", "--noise", "gaussian", "--epsilon", "1", *WORK],
        ["verify", str(run)],
        ["report", str(run), "--out", page],
    ):
        _run(python, "-m", "plrvo", *words)
        print(f"works without PyTorch: plrvo {words[0]}")
    train = [python, "-m", "plrvo", "train", "digits", "--epsilon", "1"]
    refused = subprocess.run(train, capture_output=True, text=True, cwd=place)
    if refused.returncode != 2 or "plrvo[train]" not in refused.stderr:
        raise SystemExit(f"training without PyTorch says {refused.stderr}")
    print("says what training needs: plrvo train")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, cwd=tempfile.gettempdir())
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Leave the wheel in dist/."""
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("plrvo-*.whl"):
        old.unlink()
    wheel = build(folder)
    with tempfile.TemporaryDirectory() as place:
        check(wheel, trained(Path(place) / "run"), Path(place))
    print(f"wheel: {wheel.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

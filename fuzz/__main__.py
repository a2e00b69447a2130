"""`python -m fuzz --seconds 60 [NAME ...]`: coverage-guided fuzzing of the readers; writes what was reached.

Each reader runs in a process of its own, which libFuzzer ends at the first exception that is not a refusal, at an input
that takes ten seconds, and beyond two gigabytes of memory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=20000", "-print_final_stats=1", "-verbosity=1"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help="readers; all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--harness", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.harness is not None:
        _harness(given.harness, given.corpus, given.seconds)
    from fuzz.readers import READERS

    results = {name: _fuzzed(name, given.seconds) for name in given.names or READERS}
    text = json.dumps({"seconds": given.seconds, "readers": results}, indent=2) + "\n"
    if given.out is not None:
        given.out.write_text(text)
    print(text, end="")
    return int(any(result["failed"] for result in results.values()))


def _fuzzed(name: str, seconds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fuzz", "--harness", name, "--corpus", folder, "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    edges = re.findall(r"cov: (\d+)", done.stderr)
    if done.returncode != 0:
        print(f"{name}: {done.stderr[-3000:]}", file=sys.stderr)
    return {
        "runs": int(runs.group(1)) if runs else 0,
        "edges_at_first": int(edges[0]) if edges else 0,
        "edges": int(edges[-1]) if edges else 0,
        "failed": done.returncode != 0,
    }


def _harness(name: str, corpus: Path, seconds: int) -> None:
    import atheris

    with atheris.instrument_imports(include=["plrvo"], enable_loader_override=False):
        from fuzz.readers import READERS

    reader = READERS[name]
    (corpus / "valid").write_bytes(reader.valid())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        atheris.Setup(
            [sys.argv[0], str(corpus), f"-max_total_time={seconds}", *LIMITS],
            lambda content: reader.accepts(content, folder) and None,
        )
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())

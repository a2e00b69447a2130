"""`python -m checks.fuzz --seconds 60 [NAME ...]`: coverage-guided fuzzing of the readers; writes what was reached.

Each reader runs in a process of its own, which libFuzzer ends at the first exception that is not a refusal, at an input
that takes ten seconds, and beyond two gigabytes of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=20000", "-print_final_stats=1"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", help="readers; all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["plrvo"], enable_loader_override=False):
        from checks.fuzz.readers import READERS
    results: dict[str, Any] = {}
    for name in given.names or READERS:
        with tempfile.TemporaryDirectory() as place:
            results[name] = _fuzzed(atheris, READERS[name], Path(place), given.seconds)
        print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
        if given.out is not None:
            given.out.write_text(json.dumps({"seconds": given.seconds, "readers": results}, indent=2) + "\n")
    return int(any(result["failed"] for result in results.values()))


def _fuzzed(atheris: Any, reader: Any, place: Path, seconds: int) -> dict[str, object]:
    """In a forked process: libFuzzer ends the one that it runs in."""
    log, corpus, files = place / "log", place / "corpus", place / "files"
    for folder in (corpus, files):
        folder.mkdir()
    (corpus / "valid").write_bytes(reader.valid())
    child = os.fork()
    if child == 0:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
        options = [sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-artifact_prefix={place}/", *LIMITS]
        try:
            atheris.Setup(options, lambda content: reader.accepts(content, files) and None)
            atheris.Fuzz()
        finally:
            os._exit(1)  # libFuzzer has ended the process where all went well; the folder is the parent's to remove
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = log.read_text(errors="replace")
    runs = re.search(r"number_of_executed_units:\s*(\d+)", said)
    edges = re.findall(r"cov: (\d+)", said)
    if code != 0:
        print(said[-3000:], file=sys.stderr)
    return {
        "runs": int(runs.group(1)) if runs else 0,
        "edges_at_first": int(edges[0]) if edges else 0,
        "edges": int(edges[-1]) if edges else 0,
        "failed": code != 0,
    }


if __name__ == "__main__":
    sys.exit(main())

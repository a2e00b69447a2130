"""Writes reference_values.json: what other programs say about the segments of corpus.py.

    python -m tests.tasks.tables.make_reference_values

Needs Java and pycocoevalcap 1.2, a hundred megabytes with METEOR 1.5 and Stanford's tokeniser inside, which is why the
tests read the file and do not run this.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.tasks.tables.corpus import segments

from plrvo.tasks.tables.metrics.tokens import ptb_tokens

FILE = Path(__file__).with_name("reference_values.json")
COUNT, SEED = 60, 7
METEOR_OPTIONS = ("-l", "en", "-lower", "-m", "exact stem", "-w", "1.0 0.6", "-p", "0.85 0.2 0.6 0.5")


def main() -> None:
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge import rouge

    folder = Path(rouge.__file__).parents[1]
    hypotheses, references = segments(COUNT, SEED)
    cut = [" ".join(ptb_tokens(text)) for text in hypotheses]
    cut_references = [[" ".join(ptb_tokens(text)) for text in those] for those in references]
    flat = [text for those in references for text in those]
    by_number = dict(enumerate(cut_references)), {i: [text] for i, text in enumerate(cut)}
    values = {
        "pycocoevalcap 1.2": {
            "rouge_l": float(rouge.Rouge().compute_score(*by_number)[0]),
            "cider": float(Cider().compute_score(*by_number)[0]),
        },
        "METEOR 1.5": meteor(folder / "meteor" / "meteor-1.5.jar", cut, cut_references),
        "Stanford tokens": stanford(folder / "tokenizer" / "stanford-corenlp-3.4.1.jar", flat),
    }
    FILE.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def meteor(jar: Path, hypotheses: list[str], references: list[list[str]]) -> dict[str, object]:
    command = ["java", "-jar", str(jar), "-", "-", "-stdio", *METEOR_OPTIONS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        statistics = []
        for hypothesis, those in zip(hypotheses, references, strict=True):
            process.stdin.write(" ||| ".join(["SCORE", *those, hypothesis]) + "\n")
            process.stdin.flush()
            statistics.append(process.stdout.readline().strip())
        process.stdin.write(" ||| ".join(["EVAL", *statistics]) + "\n")
        process.stdin.close()
        scores = [float(line) for line in process.stdout.read().split()]
    return {"options": list(METEOR_OPTIONS), "segments": scores[:-1], "set": scores[-1]}


def stanford(jar: Path, texts: list[str]) -> list[str]:
    command = ["java", "-cp", str(jar), "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    done = subprocess.run(command, input="\n".join(texts), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    main()

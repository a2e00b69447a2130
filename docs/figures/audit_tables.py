"""Writes the tables of the audit guide from the results in results/audit: `python -m docs.figures.audit_tables`.

A table stands in the guide between a comment with its name, an empty line, and the next empty line.
"""

import re

from docs.figures.audit_clipbkd import LABELS, PANELS, ROOT, rows, stored

from plrvo.audit.verdict import told_claim
from plrvo.cli.show import rounded_down

GUIDE = ROOT / "docs" / "guide-audit.md"
MECHANISM = {
    "mechanism-published": "Gamma-PLRV as above",
    "mechanism-certified": "the same",
    "mechanism-poisson": "Gaussian, multiplier 1, q = 0.01, one epoch of 100 steps, Poisson batches",
    "mechanism-shuffled": "the same claim, shuffled batches (`--sampler shuffled`)",
}
ONE_RUN = {
    "one-run-gradient": "white box",
    "one-run-example": "black box",
}


def audited(row: dict) -> str:
    """An audited epsilon, never printed larger than it is."""
    value = row["epsilon_audited"]
    return "0" if value == 0 else rounded_down(value, 4 if value > 0.1 else 3)


def claimed(row: dict, digits: int = 3) -> str:
    """A claimed epsilon; what is certified is never printed smaller than it is."""
    return told_claim(row["claim"], row["epsilon_claimed"], digits)


def table(*lines: list[str]) -> str:
    """A table of markdown, the first line its head."""
    made = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join([made[0], "|---" * len(lines[0]) + "|", *made[1:]])


def mechanism() -> str:
    """White box."""
    body = []
    for name, what in MECHANISM.items():
        row = stored(name)
        word = "certified for Poisson" if row["sampler"] == "shuffled" else row["claim"]
        claim = f"{word}, {claimed(row, 4)}"
        body.append([what, claim, audited(row), row["verdict"]])
    return table(["setting", "claim", "audited, at least", "verdict"], *body)


def clipbkd() -> str:
    """Black box, one line for each data set, model, noise and claim."""
    body = []
    for title, prefixes in PANELS.items():
        for prefix in prefixes:
            found = {noise: rows(prefix + noise) for noise in LABELS}
            if not all(found.values()):
                continue
            for i, first in enumerate(found["gaussian"]):
                cells = [audited(found[noise][i]) for noise in LABELS]
                models, most = f"{first['runs']:,}", rounded_down(first["epsilon_certifiable"])
                body.append([title, claimed(first), models, most, *cells])
    head = ["data and model", "claimed", "models", "could show at most", *LABELS.values()]
    return table(head, *body)


def broken() -> str:
    """Black box, clipping left out."""
    body = [[claimed(r), audited(r), r["verdict"]] for r in rows("clipbkd-no-clipping")]
    return table(["claimed", "audited, at least", "verdict"], *body)


def text() -> str:
    """SST-2."""
    body = []
    for prefix in ("clipbkd-sst2-paper-", "clipbkd-sst2-"):
        for noise, label in LABELS.items():
            body += [[label, *_counts(row)] for row in rows(prefix + noise)]
    body += [["noise left out (`--without noise`)", *_counts(row)] for row in rows("clipbkd-sst2-no-noise")]
    return table(["noise", "claimed", "models", "could show at most", "audited, at least"], *body)


def _counts(row: dict) -> list[str]:
    most = rounded_down(row["epsilon_certifiable"])
    return [claimed(row), f"{row['runs']:,}", most, audited(row)]


def one_run() -> str:
    """One training run each."""
    body = []
    for name, what in ONE_RUN.items():
        found = rows(name)
        for claim in dict.fromkeys(claimed(row) for row in found):
            own = {row["noise"]["noise"]: row for row in found if claimed(row) == claim}
            body.append(["logistic regression", what, claim, *(audited(own[noise]) for noise in LABELS)])
    cnn = {row["noise"]["noise"]: row for row in rows("one-run-cnn")}
    if cnn:
        claim = claimed(cnn["gaussian"])
        body.append(["the paper's CNN", ONE_RUN["one-run-gradient"], claim, *(audited(cnn[noise]) for noise in LABELS)])
    return table(["model", "canaries", "claimed", *LABELS.values()], *body)


def one_run_broken() -> str:
    """One training run each, of a broken engine's noise."""
    kinds = {"gradient": "white box", "example": "black box"}
    body = [[kinds[r["canary"]["kind"]], claimed(r), audited(r), r["verdict"]] for r in rows("one-run-broken")]
    return table(["canaries", "claimed", "audited, at least", "verdict"], *body)


TABLES = (mechanism, clipbkd, broken, one_run, one_run_broken, text)


def models_trained() -> int:
    """By all of the guide's runs of ClipBKD."""
    names = [prefix + noise for prefixes in PANELS.values() for prefix in prefixes for noise in LABELS]
    names += [prefix + noise for prefix in ("clipbkd-sst2-", "clipbkd-sst2-paper-") for noise in LABELS]
    return sum(row["runs"] for name in (*names, "clipbkd-no-clipping", "clipbkd-sst2-no-noise") for row in rows(name))


def page(guide: str) -> str:
    """The guide with its tables and its count of models brought up to date."""
    for make in TABLES:
        guide = re.sub(
            rf"(<!-- {make.__name__} -->\n\n).*?\n(?=\n)", rf"\g<1>{make()}\n", guide, count=1, flags=re.DOTALL
        )
    return re.sub(r"[\d,]+ models in all", f"{models_trained():,} models in all", guide)


if __name__ == "__main__":
    GUIDE.write_text(page(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")

"""What a command printed on stderr to refuse its input."""

import re

_OTHER = re.compile(r"plrvo: warning: |.*\(\d+ s\)$")  # signs of life, on a machine that is busy


def refusals(err: str) -> list[str]:
    """Its lines, apart from warnings and signs of life."""
    return [line for line in err.splitlines() if line.startswith("plrvo: ") and not _OTHER.match(line)]

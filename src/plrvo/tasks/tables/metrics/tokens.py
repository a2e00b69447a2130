"""The two ways in which `e2e-metrics` cuts text into words. Both ignore case."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

# A full stop inside the text ends a sentence unless the word has another one, as in "u.s.".
_SENTENCE_END = re.compile(r"^[^.]+\.$")
_CURRENCY = re.compile(r"([£€])")
_ANYTHING = re.compile(r"\w|[%&$£€#@+]")


def mteval_tokens(text: str) -> list[str]:
    """As NIST's mteval-v13a, by sacrebleu: punctuation is a word of its own, clitics and hyphened words stay whole.

    >>> mteval_tokens("It's near Café Rouge, family-friendly.")
    ["it's", 'near', 'café', 'rouge', ',', 'family-friendly', '.']
    """
    return str(_mteval()(text.lower())).split()


def ptb_tokens(text: str) -> list[str]:
    """As in the Penn Treebank, by NLTK, with punctuation left out: clitics are words, hyphened words stay whole.

    `e2e-metrics` asks Stanford's Java tokeniser, which differs in rare cases (docs/guide-tables.md has the numbers).

    >>> ptb_tokens("It's near Café Rouge. Family-friendly (from £20)!")
    ['it', "'s", 'near', 'café', 'rouge', 'family-friendly', 'from', '£', '20']
    """
    words = _treebank().tokenize(_CURRENCY.sub(r" \1 ", text.lower()))
    bare = (word[:-1] if _SENTENCE_END.match(word) else word for word in words)
    return [word for word in bare if _ANYTHING.search(word)]


@cache
def _mteval() -> Any:
    from sacrebleu.tokenizers import tokenizer_13a

    return tokenizer_13a.Tokenizer13a()  # type: ignore[no-untyped-call]


@cache
def _treebank() -> Any:
    from nltk.tokenize.destructive import NLTKWordTokenizer

    return NLTKWordTokenizer()

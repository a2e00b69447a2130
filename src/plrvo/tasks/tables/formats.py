"""The file formats of the data sets, and tables written as one line, as in the prefix-tuning literature (2021)."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from plrvo.validate import InvalidArgument

Triple = tuple[str, str, str]

# "customer rating[5 out of 5]": an attribute and its value; no value of E2E has a bracket in it.
_ATTRIBUTE = re.compile(r"\s*([^\[\],][^\[\]]*)\[([^\[\]]*)\]\s*(?:,|$)")


@dataclass(frozen=True)
class Entry:
    """A table in one line, and every text that people wrote for it."""

    table: str
    references: tuple[str, ...]


def e2e_line(meaning: str) -> str:
    """E2E's meaning representation as attributes and values.

    >>> e2e_line("name[Blue Spice], eatType[coffee shop], area[city centre]")
    'name : Blue Spice | eatType : coffee shop | area : city centre'
    """
    pairs, at = [], 0
    while at < len(meaning):
        match = _ATTRIBUTE.match(meaning, at)
        if match is None:
            raise InvalidArgument("mr", meaning, "attribute[value], attribute[value], ...")
        pairs.append(f"{match[1].strip()} : {match[2].strip()}")
        at = match.end()
    if not pairs:
        raise InvalidArgument("mr", meaning, "attribute[value], attribute[value], ...")
    return " | ".join(pairs)


def triples_line(triples: Iterable[Triple]) -> str:
    """Subject, relation and object of each triple.

    >>> triples_line([("Aarhus_Airport", "cityServed", "Aarhus, Denmark")])
    'Aarhus Airport : cityServed : Aarhus, Denmark'
    """
    return " | ".join(" : ".join(_words(part) for part in triple) for triple in triples)


def e2e_entries(content: bytes) -> list[Entry]:
    """The rows of a csv file with columns `mr` and `ref`, those of one table together, in order of appearance."""
    rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
    if next(rows, None) != ["mr", "ref"]:
        raise ValueError("a csv file without the columns mr and ref")
    texts: dict[str, list[str]] = {}
    for row in rows:
        if len(row) != 2:
            raise ValueError(f"a csv file with a row of {len(row)} columns")
        texts.setdefault(e2e_line(row[0]), []).append(" ".join(row[1].split()))
    return [Entry(table, tuple(those)) for table, those in texts.items()]


def xml_entries(content: bytes) -> list[Entry]:
    """The entries of a benchmark file of WebNLG or DART; a document that declares entities is refused."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root = fromstring(content)
    except DefusedXmlException as error:
        raise ValueError(f"an XML file that declares entities ({error})") from None
    except ParseError as error:
        raise ValueError(f"not an XML file ({error})") from None
    entries = []
    for entry in root.iter("entry"):
        triples = [_triple(triple.text or "") for triple in entry.iterfind("modifiedtripleset/mtriple")]
        texts = [" ".join((lex.text or "").split()) for lex in entry.iterfind("lex")]
        entries.append(_entry(triples, texts))
    return entries


def dart_json_entries(content: bytes) -> list[Entry]:
    """The entries of one of DART's JSON files."""
    return [
        _entry(
            [(str(s), str(r), str(o)) for s, r, o in item["tripleset"]],
            [" ".join(annotation["text"].split()) for annotation in item["annotations"]],
        )
        for item in json.loads(content)
    ]


def _entry(triples: list[Triple], texts: list[str]) -> Entry:
    """DART has an entry with an empty text, which nobody could be asked to write: it is left out."""
    written = tuple(text for text in texts if text)
    if not triples or not written:
        raise ValueError("an entry without a triple, or without a text")
    return Entry(triples_line(triples), written)


def _triple(text: str) -> Triple:
    parts = text.split(" | ")
    if len(parts) != 3:
        raise ValueError(f"a triple that is not subject | relation | object: {text!r}")
    return parts[0], parts[1], parts[2]


def _words(part: str) -> str:
    """Without DBpedia's underscores and quotation marks."""
    return " ".join(part.replace("_", " ").strip().strip('"').split())

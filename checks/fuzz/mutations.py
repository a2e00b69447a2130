"""Files that were valid once: hypothesis strategies for damaged bytes and for JSON with hostile values in it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

HUGE = 10**400
DEEP: Any = None
for _ in range(300):
    DEEP = [DEEP]

hostile_values = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), HUGE, -HUGE, 1e308, 5e-324, -0.0, 0.5, ""]),
    st.sampled_from([[], {}, [[]], {"": {}}, DEEP, "x" * 10_000, "NaN", "inf", "../../etc/passwd", "\x00", "\ud800"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(),
    st.text(max_size=20),
)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Bits flipped, parts cut out, doubled, or replaced."""
    places = st.integers(0, max(0, len(content) - 1))

    def edit(edits: list[tuple[int, int, bytes]]) -> bytes:
        changed = bytearray(content)
        for start, length, new in edits:
            changed[start : start + length] = new
        return bytes(changed)

    pieces = st.one_of(
        st.binary(max_size=8),
        st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"NaN", b"1e999", b"-1", b"[" * 3000, content]),
    )
    flips = st.tuples(places, st.integers(0, 7)).map(
        lambda place: content[: place[0]] + bytes([content[place[0]] ^ 1 << place[1]]) + content[place[0] + 1 :]
    )
    edits = st.lists(st.tuples(places, st.integers(0, 12), pieces), min_size=1, max_size=4).map(edit)
    return st.one_of(flips, edits, places.map(lambda end: content[:end]), st.binary(max_size=200))


def hostile_json(content: bytes) -> st.SearchStrategy[bytes]:
    """The document with one to three of its values replaced, removed, or joined by another key."""
    document = json.loads(content)

    @st.composite
    def changed(draw: st.DrawFn) -> bytes:
        value = json.loads(json.dumps(document))
        for _ in range(draw(st.integers(1, 3))):
            parent, key = draw(st.sampled_from(_places(value)))
            action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add"]))
            if action == "replace" or isinstance(parent, list):
                parent[key] = draw(hostile_values)
            elif action == "remove":
                del parent[key]
            else:
                parent[draw(st.text(max_size=10))] = draw(hostile_values)
            if not _places(value):
                break
        return json.dumps(value).encode()

    return changed()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) in the document."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    found = [(value, key) for key, _ in items]
    for _, inner in items:
        if inner is not DEEP:
            found += _places(inner)
    return found

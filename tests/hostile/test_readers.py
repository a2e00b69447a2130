"""Whatever is in a file: a valid result or one clear line, never a traceback, a hang or a huge allocation."""

import tracemalloc
import warnings

import hypothesis
import pytest
from checks.fuzz.mutations import damaged, hostile_json
from checks.fuzz.readers import READERS
from hypothesis import strategies as st
from tests.patience import within

DOCUMENTS = ["plan", "noise", "sum of seeds", "ledger", "receipt", "JSON", "page of an audit", "page of a reproduction"]
LONG = 20  # seconds
FEW = hypothesis.settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
    derandomize=True,
)


@pytest.mark.parametrize("name", READERS)
def test_a_valid_file_is_accepted(name, tmp_path):
    assert READERS[name].accepts(READERS[name].valid(), tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_damaged_bytes_are_accepted_or_refused(name, tmp_path_factory):
    reader, folder = READERS[name], tmp_path_factory.mktemp("hostile")

    @FEW
    @hypothesis.given(damaged(reader.valid()))
    def check(content):
        with within(LONG):
            reader.accepts(content, folder)

    check()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_hostile_documents_are_accepted_or_refused(name, tmp_path_factory):
    reader, folder = READERS[name], tmp_path_factory.mktemp("hostile")

    @FEW
    @hypothesis.given(hostile_json(reader.valid()))
    def check(content):
        with warnings.catch_warnings(), within(LONG):
            warnings.simplefilter("error")
            reader.accepts(content, folder)

    check()


LITTLE = [b"", b"\0" * 100, b"[" * 50_000, b"\xff" * 64, b"PK\x03\x04" + b"\xff" * 60]


@pytest.mark.parametrize("name", READERS)
def test_no_reader_takes_much_memory_for_little_content(name, tmp_path):
    for content in LITTLE:
        tracemalloc.start()
        try:
            READERS[name].accepts(content, tmp_path)
            assert tracemalloc.get_traced_memory()[1] < 1 << 26, content[:8]
        finally:
            tracemalloc.stop()


@FEW
@hypothesis.given(st.integers(0, 2**64 - 1))
def test_an_announced_header_length_takes_no_memory(tmp_path_factory, length):
    """The first eight bytes of a safetensors file."""
    content = length.to_bytes(8, "little") + READERS["checkpoint"].valid()[8:]
    folder = tmp_path_factory.mktemp("header")
    assert not READERS["checkpoint"].accepts(content, folder) or content == READERS["checkpoint"].valid()

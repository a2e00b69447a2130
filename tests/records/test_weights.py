"""A safetensors file is known by its header, and one whose header does not fit it is none."""

import json

import pytest
import torch
from safetensors.torch import save_file

from plrvo.records.weights import Tensors


def packed(path, header, behind=b""):
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + behind)
    return path


def tensor(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_what_the_library_writes_is_counted(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {"a": torch.zeros(3, 4), "b": torch.zeros(5, dtype=torch.float16), "c": torch.zeros(())}
    save_file(tensors, path, metadata={"format": "pt"})
    assert Tensors.read(path).elements == 18


WRONG = {
    "a gap": ({"a": tensor([1], 0, 4), "b": tensor([1], 8, 12)}, bytes(12)),
    "an overlap": ({"a": tensor([2], 0, 8), "b": tensor([1], 4, 8)}, bytes(8)),
    "bytes behind the last": ({"a": tensor([1], 0, 4)}, bytes(5)),
    "bytes that are missing": ({"a": tensor([2], 0, 8)}, bytes(4)),
    "another size than its shape": ({"a": tensor([3], 0, 8)}, bytes(8)),
    "another size than its type": ({"a": tensor([2], 0, 8, "F16")}, bytes(8)),
    "an unknown type": ({"a": tensor([1], 0, 4, "Q4")}, bytes(4)),
    "a size below zero": ({"a": tensor([-1, -1], 0, 4)}, bytes(4)),
    "a size that is true": ({"a": tensor([True], 0, 4)}, bytes(4)),
    "no object": ([1], b""),
    "no JSON": (b"{", b""),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_header_that_does_not_fit_is_no_file_of_weights(tmp_path, name):
    header, behind = WRONG[name]
    assert Tensors.read(packed(tmp_path / "w", header, behind)) is None


def test_what_is_no_file_has_no_weights(tmp_path):
    assert Tensors.read(tmp_path / "absent") is None
    assert Tensors.read(tmp_path) is None
    (tmp_path / "short").write_bytes(b"abc")
    assert Tensors.read(tmp_path / "short") is None
    (tmp_path / "long").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    assert Tensors.read(tmp_path / "long") is None

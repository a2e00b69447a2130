"""No code path unpickles: what a pickle says is run, not read."""

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest
from checks.fuzz.readers import READERS

import plrvo

SOURCES = Path(plrvo.__file__).parent
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}
# The weights of one package, whose checksum is compared first, and only as tensors.
CHECKED = {("tasks/vision/efficientnet.py", "torch.load")}


def calls_in(path: Path) -> list[tuple[str, ast.Call]]:
    return [
        (ast.unparse(node.func), node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ]


def test_no_source_loads_a_pickle():
    sources = sorted(SOURCES.rglob("*.py"))
    assert len(sources) > 200
    for path in sources:
        loads_no_pickle(path)


def loads_no_pickle(path: Path) -> None:
    name = path.relative_to(SOURCES).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not FORBIDDEN_MODULES & {module.split(".")[0] for module in modules}
    for function, call in calls_in(path):
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        if function in ("np.load", "numpy.load"):
            assert ast.unparse(options["allow_pickle"]) == "False"
        if function == "torch.load":
            assert (name, function) in CHECKED
            assert ast.unparse(options["weights_only"]) == "True"
        assert function not in ("joblib.load", "pd.read_pickle", "pandas.read_pickle", "torch.jit.load", "eval", "exec")
        if function.endswith(".from_pretrained") and ("Model" in function or "ViT" in function):
            # Either said here, or in the options that the call spreads: GGUF, which is no pickle, or safetensors.
            spread = None in options and ast.unparse(options[None]) == "weights"
            assert spread or ast.unparse(options["use_safetensors"]) == "True"
            assert not spread or 'weights = where or {"use_safetensors": True}' in path.read_text()
        if function.endswith((".from_pretrained", "load_dataset")):
            assert ast.unparse(options["trust_remote_code"]) == "False"


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", READERS)
def test_no_reader_springs_a_trap(name, tmp_path):
    trap, file = Trap(tmp_path / "sprung"), tmp_path / "trap.npy"
    np.save(file, np.array([trap], dtype=object), allow_pickle=True)
    for content in (pickle.dumps(trap), file.read_bytes()):
        READERS[name].accepts(content, tmp_path)
        assert not trap.path.exists()

"""The names of the package: all of them work, and none is imported before it is asked for."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import plrvo


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_type_checkers_are_told_where_the_names_are():
    """What they read stands in the branch that never runs."""
    tree = ast.parse(Path(plrvo.__file__).read_text(encoding="utf-8"))
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    told = {alias.name: node.module for node in branch.body for alias in node.names}  # type: ignore[attr-defined]
    assert told == plrvo._MODULE_OF
    assert sorted(told) == sorted(plrvo.__all__)


@pytest.mark.parametrize("name", plrvo.__all__)
def test_a_name_is_that_of_its_module(name):
    __import__(plrvo._MODULE_OF[name])
    assert getattr(plrvo, name) is getattr(sys.modules[plrvo._MODULE_OF[name]], name)
    assert name in dir(plrvo)


def test_no_module_has_the_name_of_a_function():
    """An import of it would put the module in the place of the function."""
    assert not {module.name for module in pkgutil.iter_modules(plrvo.__path__)} & set(plrvo.__all__)


def test_a_bare_import_is_light():
    heavy = "{'numpy', 'scipy', 'torch'} & set(sys.modules)"
    assert run(f"import sys, plrvo; plrvo.__version__, dir(plrvo); print({heavy})") == "set()"


def test_names_work_after_a_bare_import():
    work = "plrvo.Workload(sample_rate=0.1, steps=3, clip=1.0, dimension=1)"
    assert float(run(f"import plrvo; print(plrvo.epsilon(plrvo.Gaussian(2.0), {work}, 1e-5).certified)")) > 0


def test_a_star_brings_every_name():
    assert run("import plrvo\nfrom plrvo import *\nprint(set(plrvo.__all__) - set(globals()))") == "set()"


@pytest.mark.parametrize("module", ["accounting", "designer", "files", "noise", "validate", "version"])
def test_parts_are_attributes_as_they_were(module):
    assert run(f"import plrvo; print(plrvo.{module}.__name__)") == f"plrvo.{module}"


def test_what_there_is_not_is_said():
    with pytest.raises(AttributeError, match="module 'plrvo' has no attribute 'epsilom'"):
        _ = plrvo.epsilom

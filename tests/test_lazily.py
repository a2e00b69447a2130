"""Packages that import a name when it is first asked for: what stands there for type checkers is what is found."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import plrvo.accounting
import plrvo.noise
from plrvo.lazily import by_name, finder

PACKAGES = [plrvo.accounting, plrvo.noise]


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_are_told_what_python_is(package):
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    branch = next(node for node in tree.body if isinstance(node, ast.If))
    told = {alias.name: node.module for node in branch.body for alias in node.names}
    assert told == package._MODULE_OF
    assert sorted(told) == sorted(package.__all__) == dir(package)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_and_every_module_is_an_attribute(package):
    for name, module in package._MODULE_OF.items():
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    found = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not found & set(package.__all__)  # an import of it would put the module in the place of the name
    for name in found:
        assert getattr(package, name) is importlib.import_module(f"{package.__name__}.{name}")


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", ["epsilom", "_missing", "__wrapped__"])
def test_what_there_is_not_is_said(package, name):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute '{name}'"):
        getattr(package, name)


def test_an_epsilon_waits_for_no_part_that_it_has_no_use_for():
    unused = "plrvo.accounting.plan plrvo.accounting.correlated plrvo.noise.registry plrvo.noise.specification torch"
    script = "import sys, plrvo; plrvo.epsilon(plrvo.Gaussian(2.0), plrvo.Workload(0.1, 3, 1.0, 1), 1e-5); "
    assert run(script + f"print(set({unused.split()}) & set(sys.modules))") == "set()"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_star_brings_every_name(package):
    script = f"import {package.__name__} as p\nfrom {package.__name__} import *\nprint(set(p.__all__) - set(globals()))"
    assert run(script) == "set()"


def test_a_name_is_looked_for_once():
    find = finder("plrvo.noise", by_name({"plrvo.noise.laplace": ("Laplace",)}), ())
    found = find("Laplace")
    assert vars(plrvo.noise)["Laplace"] is found  # Python does not ask again
    with pytest.raises(AttributeError):
        find("laplace")  # no modules

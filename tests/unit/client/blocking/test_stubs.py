"""The stubs in the tree are those that `python -m tests.blocking_stubs` writes."""

from __future__ import annotations

import ast
from importlib import import_module

import pytest

from tests.blocking_stubs import MODULES, path_of, stub_of
from tests.modules import python_files
from tests.places import ROOT
from trimaran.client.blocking.facade import TWINS, Blocking


@pytest.mark.parametrize("module", MODULES)
def test_a_stub_says_what_the_facade_makes(module: str) -> None:
    assert path_of(module).read_text(encoding="utf-8") == stub_of(module)


def test_each_class_that_the_facade_makes_has_a_stub() -> None:
    made = {twin.__module__ for twin in TWINS.values() if twin.__module__.startswith("trimaran.")}

    assert made - {Blocking.__module__} == set(MODULES)


def test_a_module_with_a_stub_has_no_code_of_its_own() -> None:
    """Type checkers read the stub in its place, and would not see it."""
    for module in MODULES:
        path = path_of(module).with_suffix(".py")
        assert path in python_files("client")
        classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        code = [node for kind in classes for node in kind.body if not isinstance(node, ast.Expr | ast.Assign)]
        assert code == [], f"{path.relative_to(ROOT)}"
        assert all(getattr(import_module(module), kind.name).__doc__ for kind in classes)

"""Public names whose packages are not installed: an import says what to install, to others they are absent."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import trimaran.archive.spark
import trimaran.cluster.testing
from tests.facts import has_facts
from trimaran import ConfigurationError

EXTRAS = [
    (trimaran.cluster.testing, "strategy_for", "strategies", "hypothesis", "trimaran[test]"),
    (trimaran.cluster.testing, "service_machine", "machines", "hypothesis", "trimaran[test]"),
    (trimaran.archive.spark, "create_session", "extra", "pyspark", "trimaran[spark]"),
]


@pytest.mark.parametrize(("package", "name", "home", "missing", "extra"), EXTRAS, ids=[name for _, name, *_ in EXTRAS])
def test_a_name_whose_packages_are_missing_is_no_attribute_and_its_import_says_what_to_install(
    package: ModuleType, name: str, home: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [each for each in sys.modules if each.partition(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, module, None)  # as Python notes a module that there is not
    monkeypatch.setitem(sys.modules, missing, None)
    for module in (f"{package.__name__}.{home}", f"{package.__name__}.strategies"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(package, name, raising=False)

    assert not hasattr(package, name)
    assert getattr(package, name, None) is None
    with pytest.raises(AttributeError, match=name):
        getattr(package, name)
    for kind in (ImportError, ConfigurationError):
        with pytest.raises(kind) as raised:
            exec(f"from {package.__name__} import {name}")
        assert has_facts(raised.value, f"pip install '{extra}'")


def test_a_name_that_there_is_not_is_said_by_both() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(trimaran.cluster.testing, "no_such_name")  # noqa: B009
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from trimaran.cluster.testing import no_such_name")

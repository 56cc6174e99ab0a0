"""The refusal when another distribution has installed one of the four package names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from service_api.distribution import check_package_owners, installed_owners, package_owners
from service_api.errors import ConfigurationError
from tests.unit.service_api.intruder import install_intruder


def owned_by(**owners: Sequence[str]) -> Mapping[str, Sequence[str]]:
    return owners


def test_an_editable_install_which_owns_nothing_is_fine() -> None:
    check_package_owners(lambda: owned_by(pytest=["pytest"]))


def test_our_own_wheel_is_fine() -> None:
    check_package_owners(lambda: owned_by(cluster=["quorate", "quorate"], client=["Quorate"]))


def test_an_intruder_is_named_with_what_it_owns_and_what_to_do() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_package_owners(lambda: owned_by(cluster=["quorate", "cluster"], client=["cluster"]))

    message = str(caught.value)
    assert "'cluster' owns cluster, client" in message
    assert "pip uninstall cluster" in message
    assert "\n" not in message


def test_a_distribution_on_the_import_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_intruder(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    assert package_owners(installed_owners)["cluster"] == ["raft-demo"]
    with pytest.raises(ConfigurationError, match="'raft-demo' owns cluster"):
        check_package_owners()

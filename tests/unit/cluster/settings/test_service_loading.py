"""Finding the user's service class."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran.cluster.settings.service_loading import load_service_class
from trimaran.service_api.errors import ConfigurationError

GOOD = """
from trimaran import ClusteredService

class Echo(ClusteredService):
    def on_session_message(self, session, timestamp, payload):
        session.offer(payload)

class Half(ClusteredService):
    pass

class Other:
    pass
"""


@pytest.fixture
def service_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory with services; the import path and the loaded modules are put back."""
    (tmp_path / "good_service.py").write_text(GOOD)
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "fails.py").write_text("1 / 0\n")
    (tmp_path / "waits.py").write_text(
        "from trimaran import ClusteredService\n"
        "class Waits(ClusteredService):\n"
        "    async def on_session_message(self, session, timestamp, payload): ...\n"
    )
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_service_is_found_beside_its_config(service_dir: Path) -> None:
    found = load_service_class("good_service:Echo", service_dir)

    assert found.__name__ == "Echo"
    assert str(service_dir) in sys.path


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("absent:Echo", "module=absent"),
        ("good_service:Absent", "service=good_service:Absent"),
        ("good_service:Other", "ClusteredService"),
        ("good_service:Half", "service=good_service:Half"),
        ("needs_more:Echo", "reason=No module named 'not_installed_anywhere'"),
        ("fails:Echo", "reason=ZeroDivisionError"),
        ("waits:Waits", "plain function"),
    ],
)
def test_a_service_that_cannot_be_used_is_one_clear_line(service_dir: Path, service: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_service_class(service, service_dir)

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_service_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="service directory"):
        load_service_class("m:C", tmp_path / "absent")

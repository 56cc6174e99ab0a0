"""Processes that benchmarks start are forked, as those of the system tests: see `tests.system.fork_server`."""

from __future__ import annotations

import pytest

from tests.system.fork_server import ForkedGroup
from trimaran.benchmarks.rig.processes import ProcessGroup


@pytest.fixture
def processes_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork from a process that has imported Trimaran already."""
    monkeypatch.setattr(ProcessGroup, "spawn", ForkedGroup.spawn)

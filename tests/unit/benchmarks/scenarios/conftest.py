"""Members that benchmarks start are forked, as those of the system tests: see `tests.system.fork_server`."""

from __future__ import annotations

import pytest

from tests.system.fork_server import ForkedGroup
from trimaran.benchmarks.rig.processes import ProcessGroup

AS_A_USER_STARTS_THEM = "test_echo"


@pytest.fixture(autouse=True)
def _members_are_forked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.stem != AS_A_USER_STARTS_THEM:
        monkeypatch.setattr(ProcessGroup, "spawn", ForkedGroup.spawn)

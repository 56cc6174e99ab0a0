"""One recorded log for all tests of a file that want one; nobody may change it."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.cluster.time_travel.recorded import Recorded, record


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run a member, stop it, run it again; gives its directory and what was seen."""
    return asyncio.run(record(tmp_path_factory.mktemp("recorded") / "node-0"))

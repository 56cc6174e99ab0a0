"""What the benchmark `opening` makes of its readings."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.benchmarks.scenarios.opening import OpeningParameters, _Reading
from trimaran.service_api.errors import ConfigurationError


@pytest.mark.parametrize("name", ["sessions", "at_once"])
def test_parameters_that_make_no_run_are_refused(name: str) -> None:
    settings: dict[str, Any] = {name: 0}

    with pytest.raises(ConfigurationError, match=f"{name}=0 expected at least 1"):
        OpeningParameters(**settings)


def test_sessions_with_connections_of_their_own_are_spread_over_as_many_processes_as_may_open_the_files() -> None:
    assert OpeningParameters(sessions=5_000).process_count == 1
    assert OpeningParameters(sessions=10_000).process_count == 2
    assert OpeningParameters(sessions=10_000, share=True).process_count == 1
    assert OpeningParameters(sessions=3, processes=4).process_count == 3


def test_processor_time_is_given_by_session_for_leader_followers_and_client() -> None:
    before = _Reading(0.0, 1.0, {"member-0": 1.0, "member-1": 2.0, "member-2": 3.0})
    after = _Reading(9.0, 1.5, {"member-0": 1.1, "member-1": 2.4, "member-2": 3.3})

    used = after.since(before, 1, 1_000)

    assert used == {"leader_us": 400.0, "follower_us": 200.0, "client_us": 500.0}

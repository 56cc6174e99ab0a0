"""Sessions that share a connection, under faults: every request runs once, and the history is linearizable."""

from __future__ import annotations

import pytest

from tests.sampling import sampled
from trimaran.cluster.testing.simulation.run import Options, run_seed

OPTIONS = Options(client_count=0, requester_count=2, requester_session_count=6, safety_timeouts=6)


@pytest.mark.parametrize("seed", sampled(range(3), {1, 2}))
def test_requests_of_shared_sessions_run_once_under_faults(seed: int) -> None:
    outcome = run_seed(seed, OPTIONS)

    assert outcome.failure is None
    assert outcome.acknowledged_count > 50

"""The trace tells two runs apart, and people what happened."""

from __future__ import annotations

import re

from tests.unit.cluster.testing.simulation.small_cluster import running_cluster, small_cluster

STATE = re.compile(
    r"^ +\d+\.\d{6}  member \d  (FOLLOWER|CANDIDATE|LEADER) +[A-Z_]+ +"
    r"term=-?\d+ candidate=-?\d+ leader=(-|\d) append=\d+ commit=\d+ delivered=\d+$"
)


def test_every_line_about_a_member_is_its_whole_consensus_state_at_a_time() -> None:
    with running_cluster() as small:
        lines = small.lines
        times = [float(line.split()[0]) for line in lines]

        assert lines
        assert [line for line in lines if not STATE.match(line)] == []
        assert times == sorted(times)
        assert {line.split()[2] for line in lines} == {"0", "1", "2"}
        assert any(" LEADER    TERM " in line for line in lines)
        end = len(small.referee.committed)
        assert f"append={end} commit={end} delivered={end}" in lines[-1]


def test_faults_are_told_and_count() -> None:
    with small_cluster() as small:
        before = small.trace.hexdigest()
        small.trace.on_fault("kill")

        assert small.lines == ["    1.000000  fault     kill"]
        assert small.trace.hexdigest() != before
        assert repr(small.trace) == f"<Trace {small.trace.hexdigest()}>"

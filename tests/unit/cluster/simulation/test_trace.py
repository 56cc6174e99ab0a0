"""The trace tells two runs apart, and people what happened."""

from __future__ import annotations

import re

from trimaran.cluster.simulation.trace import Trace

from .small_cluster import SmallCluster, running_cluster, small_cluster

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


def test_a_state_that_is_as_before_is_not_told_again() -> None:
    with running_cluster() as small:
        before, told = small.trace.hexdigest(), len(small.lines)
        small.trace.on_member(small.leader)

        assert len(small.lines) == told
        assert small.trace.hexdigest() == before


def test_a_member_without_a_node_is_not_told_of() -> None:
    with small_cluster() as small:
        small.trace.on_member(small.member(0))
        assert small.lines == []


def test_faults_are_told_and_count() -> None:
    with small_cluster() as small:
        before = small.trace.hexdigest()
        small.trace.on_fault("kill")

        assert small.lines == ["    1.000000  fault     kill"]
        assert small.trace.hexdigest() != before
        assert repr(small.trace) == f"<Trace {small.trace.hexdigest()}>"


def test_each_arrival_counts_by_its_time_its_connection_and_its_length() -> None:
    def digest(*arrivals: tuple[int, int, int]) -> str:
        with small_cluster() as small:
            for delay_ns, number, length in arrivals:
                small.cluster.run_for(delay_ns)
                small.cluster.network.trace(number, length)
            return small.trace.hexdigest()

    digests = [digest(*arrivals) for arrivals in ([], [(0, 1, 5)], [(1, 1, 5)], [(0, 2, 5)], [(0, 1, 6)], [(0, 1, -1)])]

    assert len(set(digests)) == len(digests)
    assert digest((0, 1, 5)) == digests[1]


def test_a_trace_without_a_writer_has_the_same_hash() -> None:
    def run(*, is_silent: bool) -> str:
        with small_cluster() as small:
            if is_silent:
                silence(small)
            small.start()
            return small.trace.hexdigest()

    assert run(is_silent=True) == run(is_silent=False)


def silence(small: SmallCluster) -> None:
    small.trace = Trace(small.cluster, None)
    small.referee.watch(small.cluster, small.trace)

"""The demo kills a leader only when the others have joined it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import pytest

from tests.unit.cluster.cli.answers import answered, member_status
from trimaran.cluster.cli.demo.demo import wait_until_all_follow
from trimaran.cluster.cli.shared.cluster_report import ClusterReport, make_report
from trimaran.service_api.errors import ClusterTimeoutError
from trimaran.service_api.net.transport import SOCKETS, NetworkStack

MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9100,2=127.0.0.1:9200"


def report_with(late_state: str) -> ClusterReport:
    statuses = (
        member_status(0),
        member_status(1, state="LEADER"),
        member_status(2, state=late_state, leader=None, term=None)
        if late_state != "FOLLOWER"
        else member_status(2, state=late_state),
    )
    return make_report([answered(status) for status in statuses], asked_at_ms=0)


def answer_with(monkeypatch: pytest.MonkeyPatch, states: list[str]) -> list[Mapping[int, str]]:
    """Give these states of member 2, one after another and the last for ever; return what was asked."""
    asked: list[Mapping[int, str]] = []

    async def ask_cluster(endpoints: Mapping[int, str], timeout_s: float, *, network: NetworkStack) -> ClusterReport:
        asked.append(endpoints)
        return report_with(states[min(len(asked), len(states)) - 1])

    module = importlib.import_module("trimaran.cluster.cli.demo.demo")  # the package has the command by this name
    monkeypatch.setattr(module, "ask_cluster", ask_cluster)
    monkeypatch.setattr(module, "STATUS_INTERVAL_S", 0)
    return asked


async def test_a_member_that_is_late_to_start_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no voter yet: with the leader dead one of three could vote, and the demo failed."""
    asked = answer_with(monkeypatch, ["CANVASS", "FOLLOWER_CATCHUP", "FOLLOWER"])

    await wait_until_all_follow(MEMBERS, SOCKETS, limit_s=60)

    assert [*map(len, asked)] == [3, 3, 3]


async def test_a_member_that_never_joins_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, ["CANVASS"])

    with pytest.raises(ClusterTimeoutError, match=r"2 of 3.* 0\.01 s"):
        await wait_until_all_follow(MEMBERS, SOCKETS, limit_s=0.01)

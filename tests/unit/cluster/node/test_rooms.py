"""The order in which the rooms of a member open and close."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import running_cluster, small_cluster
from trimaran.cluster.runtime.ground.room import Room
from trimaran.service_api.net.transport import Purpose


def test_a_member_listens_for_members_when_everything_else_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    purposes: list[Purpose] = []
    with small_cluster() as small:
        network = type(small.member(0).machine.host().network)
        listen = network.listen

        async def note_and_listen(self: Any, purpose: Purpose, *args: Any, **options: Any) -> Any:  # as the network's
            purposes.append(purpose)
            return await listen(self, purpose, *args, **options)

        monkeypatch.setattr(network, "listen", note_and_listen)
        small.cluster.start(0)
        small.wait(lambda: small.member(0).node is not None and Purpose.CONSENSUS in purposes)

    assert purposes[-1] is Purpose.CONSENSUS
    assert {*purposes} >= {Purpose.INGRESS, Purpose.LOG, Purpose.CATCHUP}


def test_rooms_close_in_reverse_and_settle_when_all_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, str]] = []

    def note(kind: type[Room], step: str) -> None:
        """Have a step of a room noted."""
        perform = getattr(kind, step)

        def note_and_perform(self: Room) -> Any:  # a coroutine, or None
            steps.append((step, kind.__name__))
            return perform(self)

        monkeypatch.setattr(kind, step, note_and_perform)

    with running_cluster() as small:
        stopped = small.follower
        assert stopped.node is not None
        assert stopped.machine.loop is not None
        kinds = [type(room) for room in stopped.node.parts.rooms]
        for kind in kinds:
            note(kind, "close")
            note(kind, "aclose")
        stopped.machine.loop.call_soon(stopped.node.stop)
        small.wait(lambda: stopped.node is None)
        seen = [*steps]

    names = [kind.__name__ for kind in reversed(kinds)]
    assert seen == [*(("close", name) for name in names), *(("aclose", name) for name in names)]

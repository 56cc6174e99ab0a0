"""The planted bugs and directed scenarios of services that fail on one member, or on a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimaran.client import ClusterClient
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.service import agent as service_agent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.cluster.service.failures import FixedHeadroom, foreign_cause
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.services.registers import Request, RequestKind
from trimaran.service_api import ClientSession
from trimaran.service_api.wire.log.messages import EntrySkip
from trimaran.service_api.wire.session import EventCode

from .plant import Plant, Planting

if TYPE_CHECKING:
    from .scenarios import Scene

_SAME: Final = "every service is given the same, and becomes the same"
_BAIT_PADDING: Final = 4_000
"""Bytes that no other request of a scenario has; what a bait has more is how deep its callback recurses."""


@dataclass(slots=True)
class Carelessness:
    """Services that fail at a bait: a message with more padding than others have."""

    scene: Scene
    without_memory: set[int] = field(default_factory=set)
    """Members on which a bait finds no memory."""

    def attach(self) -> None:
        """Put this in front of the service of every node that is made."""
        watch = self.scene.cluster.on_node

        def on_node(member: Member) -> None:
            watch(member)
            assert member.node is not None
            service: Any = member.node.service_agent.service  # a member's own wrapper of its one service
            service.on_session_message = self._guard(member, service.on_session_message)

        self.scene.cluster.on_node = on_node

    def _guard(self, member: Member, call: Callable[[ClientSession, int, memoryview], None]) -> Any:
        def on_session_message(session: ClientSession, timestamp: int, payload: memoryview) -> None:
            if len(payload) >= _BAIT_PADDING:
                if member.member_id in self.without_memory:
                    raise MemoryError
                _dive(len(payload) - _BAIT_PADDING)
            call(session, timestamp, payload)

        return on_session_message

    def bait(self, *depths: int) -> None:
        """Start a client that sends a bait for each depth."""
        config = self.scene.client_config()

        async def send() -> None:
            async with ClusterClient.connect([], egress_listener=Deaf(), config=config) as client:
                for sequence, depth in enumerate(depths, 1):
                    request = Request(RequestKind.PUT, 0, sequence, 1, sequence)
                    await client.offer(request.encode(padding_length=_BAIT_PADDING + depth))
                await asyncio.sleep(1_000)

        self.scene.cluster.add_client("bait", send)


class Deaf:
    """Listens to nothing."""

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Drop an answer."""

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Go on."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Its session ended: it has sent what it had."""


def _dive(depth: int) -> int:
    return _dive(depth - 1) if depth > 0 else 0


def _serve(scene: Scene) -> Carelessness:
    careless = Carelessness(scene)
    careless.attach()
    scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    return careless


def a_member_without_memory(scene: Scene) -> None:
    """A callback finds no memory on one member alone: that one stops, and goes on once it has some."""
    careless = _serve(scene)
    member = scene.followers()[0]
    careless.without_memory.add(member.member_id)
    scene.failures[member.member_id] = None
    careless.bait(0)
    scene.run_until(lambda: not member.is_running, 10, "a member that fails alone stops before it acknowledges")
    careless.without_memory.clear()
    scene.cluster.start(member.member_id)
    _expect_equal(scene)


def nested_messages(scene: Scene) -> None:
    """Callbacks recurse to the limit: each member raises at the same messages, live, in a replay and in a catch-up."""
    careless = _serve(scene)
    late, again = scene.followers()
    scene.cluster.kill(late.member_id)
    careless.bait(*range(800, 1_000))
    scene.run(2)
    scene.cluster.start(late.member_id)
    scene.run(1)
    scene.cluster.kill(again.member_id)
    scene.cluster.start(again.member_id)
    _expect_equal(scene)


def an_entry_that_a_majority_cannot_deliver(scene: Scene) -> None:
    """Two of three fail at an entry each time: they hold, an operator has it skipped, the third starts again."""
    careless = _serve(scene)
    third, *failing = [*scene.followers(), *([leader] if (leader := scene.cluster.leader()) else [])]
    careless.without_memory |= {member.member_id for member in failing}
    scene.failures.update(dict.fromkeys(careless.without_memory))
    careless.bait(0)
    for _ in range(200):
        for member in failing:
            scene.cluster.start(member.member_id)  # one that runs is left alone
        scene.run(0.1)
        if all(_held_position(member) is not None for member in failing):
            break
    position = _held_position(failing[0])
    assert position is not None
    scene.run_until(lambda: _delivered(third) > position, 20, "a cluster works while one member delivers")
    scene.cluster.kill(third.member_id)
    scene.run_until(lambda: scene.cluster.leader() in failing, 30, "a majority has a leader, also where it holds")
    _forget(scene, position, None)  # history changes: that is what an operator asks for
    leader = scene.await_leader()
    assert leader.node is not None
    assert leader.machine.loop is not None
    order = ActionRequested(0, ControlToggle.SKIP_ENTRY, position)
    leader.machine.loop.call_soon(leader.node.agent.post, order)
    scene.run_until(
        lambda: all(_delivered(member) > position for member in failing), 30, "a skipped entry is in nobody's way"
    )
    # Until the third meets the skip, it delivers the entry again, and what follows it as it was.
    skip_position = _skipped_entries(failing[0])[position]
    delivered = _forget(scene, position, skip_position)
    scene.cluster.start(third.member_id)
    scene.run_until(lambda: position in _skipped_entries(third), 20, "a member learns of what it had delivered")
    _forget(scene, position, skip_position)
    scene.referee.services.delivered.update(delivered)
    count = scene.history.acknowledged_count
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count > count + 20, 30, "a cluster serves after a skip")
    _expect_equal(scene)


def _forget(scene: Scene, begin: int, end: int | None) -> dict[int, Any]:
    """Let the referee forget what services were given from one position up to before another one; give that."""
    delivered = scene.referee.services.delivered
    found = [position for position in delivered if begin <= position and (end is None or position < end)]
    return {position: delivered.pop(position) for position in found}


def _skipped_entries(member: Member) -> dict[int, int]:
    return {} if member.node is None else member.node.module.ctx.skipped_entries


def _held_position(member: Member) -> int | None:
    held = None if member.node is None else member.node.module.ctx.held
    return None if held is None else held.log_position


def _delivered(member: Member) -> int:
    return 0 if member.node is None else member.node.delivered_position


def _expect_equal(scene: Scene) -> None:
    """All members run, and deliver what is committed now; the referee compares their states entry by entry."""
    scene.run(2)
    position = len(scene.referee.committed)
    scene.run_until(
        lambda: all(_delivered(member) >= position for member in scene.cluster.members.values()),
        20,
        "every member delivers in the end",
    )


def _failure_is_an_answer(planting: Planting) -> None:
    def no_cause(error: BaseException) -> BaseException | None:
        if foreign_cause(error) is not None:
            planting.ran()
        return None

    planting.replace(service_agent, "foreign_cause", no_cause)


def _headroom_of_the_caller(planting: Planting) -> None:
    planting.replace(FixedHeadroom, "enter", lambda self: planting.ran())
    planting.replace(FixedHeadroom, "leave", lambda self: None)


def _skip_only_where_held(planting: Planting) -> None:
    """A member that had delivered the entry takes note of the skip, and goes on as it is."""
    real = ConsensusModule.on_replay_entry_skip

    def on_replay_entry_skip(self: ConsensusModule, event: EntrySkip) -> bool:
        if not real(self, event):
            planting.ran()
        return True

    planting.replace(ConsensusModule, "on_replay_entry_skip", on_replay_entry_skip)


def _learn_from_what_is_not_there(planting: Planting) -> None:
    """A member that holds forgets the skip that it has found."""
    real = BoundedLogAdapter._search

    def search(self: BoundedLogAdapter, limit_bytes: int) -> bool:
        on_skip, self.on_skip = self.on_skip, lambda skip: planting.ran()
        try:
            return real(self, limit_bytes)
        finally:
            self.on_skip = on_skip

    planting.replace(BoundedLogAdapter, "_search", search)


PLANTS: Final = (
    Plant("failure-is-an-answer", 31, _SAME, _failure_is_an_answer, scenario="no-memory"),
    Plant("headroom-of-the-caller", 31, _SAME, _headroom_of_the_caller, scenario="nested-messages"),
    Plant("skip-only-where-held", 31, _SAME, _skip_only_where_held, scenario="entry-skip"),
    Plant(
        "skip-not-heeded",
        27,
        "a skipped entry is in nobody's way",
        _learn_from_what_is_not_there,
        scenario="entry-skip",
    ),
)

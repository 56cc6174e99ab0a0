"""Planted bugs in what makes a request run once, and in what its client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from trimaran.client.errors import RejectedError
from trimaran.client.protocol.requests import RequestWindow
from trimaran.client.shared.frame_owner import KIND_OFFSET, SESSION_ID_OFFSET, SESSION_MESSAGE_KIND
from trimaran.client.shared.session_channel import SessionChannel
from trimaran.client.shared.shared_link import SharedLink
from trimaran.cluster.runtime.links.gathered_ingress import GatheredIngress
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.replies import RequestRunner, SessionReplies
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.session_frame import PREFIX_LENGTH

from .plant import HUNT_OPTIONS, REQUEST_HUNT_OPTIONS, Plant, Planting


def _forget(replies: SessionReplies, count: int) -> int:
    """Drop the oldest replies; gives how many there were."""
    dropped = min(count, len(replies.kept))
    for _ in range(dropped):
        replies.kept_bytes -= len(replies.kept.popleft()[1])
    replies.first_sequence += dropped
    return dropped


def _drop_replies_with_the_leader(planting: Planting) -> None:
    """Every member forgets the replies when a new leader begins."""
    real = ClusteredServiceAgent.on_new_leadership_term_event

    def on_new_leadership_term_event(self: ClusteredServiceAgent, event: Any, code_digest: int) -> None:
        for replies in self.requests.sessions.values():
            if _forget(replies, len(replies.kept)):
                planting.ran()
        real(self, event, code_digest)

    planting.replace(ClusteredServiceAgent, "on_new_leadership_term_event", on_new_leadership_term_event)


def _leave_replies_out_of_snapshots(planting: Planting) -> None:
    def snapshot_messages(self: RequestRunner) -> Iterator[Message]:
        if self.sessions:
            planting.ran()
        return iter(())

    planting.replace(RequestRunner, "snapshot_messages", snapshot_messages)


def _run_what_comes_again(planting: Planting) -> None:
    """A request that was run before is run as if it were new; its reply takes the place of the old one."""
    real = RequestRunner.on_request

    def on_request(
        self: RequestRunner, session: Any, timestamp: int, sequence: int, acknowledged: int, payload: memoryview
    ) -> None:
        replies = self.sessions.get(session.id)
        if replies is not None and replies.first_sequence <= sequence < replies.next_sequence:
            planting.ran()
            try:
                answer = 0, bytes(self._service.on_request(session, timestamp, payload))
            except Exception:
                answer = replies.kept[sequence - replies.first_sequence]
            replies.kept[sequence - replies.first_sequence] = answer
            session.offer_reply(sequence, *answer)
            return
        real(self, session, timestamp, sequence, acknowledged, payload)

    planting.replace(RequestRunner, "on_request", on_request)


def _drop_replies_early(planting: Planting) -> None:
    """What a client has acknowledged is dropped, and the reply after it."""
    real = RequestRunner.on_request

    def on_request(
        self: RequestRunner, session: Any, timestamp: int, sequence: int, acknowledged: int, payload: memoryview
    ) -> None:
        real(self, session, timestamp, sequence, acknowledged, payload)
        replies = self.sessions[session.id]
        if len(replies.kept) > 1:
            planting.ran()
            _forget(replies, 1)

    planting.replace(RequestRunner, "on_request", on_request)


def _keep_replies_on_the_leader_only(planting: Planting) -> None:
    """A follower takes note of a request, and not of what came of it."""
    real = RequestRunner.on_request

    def on_request(
        self: RequestRunner, session: Any, timestamp: int, sequence: int, acknowledged: int, payload: memoryview
    ) -> None:
        real(self, session, timestamp, sequence, acknowledged, payload)
        replies = self.sessions[session.id]
        if session._outlet is None and _forget(replies, len(replies.kept)):
            planting.ran()

    planting.replace(RequestRunner, "on_request", on_request)


def _call_the_unknown_rejected(planting: Planting) -> None:
    """The client says of a request that it sent and had no reply to in time that it was never applied."""

    def doubt(self: RequestWindow, index: int) -> None:
        request = self._sent[index]
        assert request is not None
        waiter, payload, _ = request
        self._sent[index] = waiter, payload, 1 << 63
        if isinstance(waiter, asyncio.Future) and not waiter.done():
            planting.ran()
            waiter.set_exception(RejectedError("timed out"))

    planting.replace(RequestWindow, "_mark_indeterminate", doubt)


def _number_what_comes_again_anew(planting: Planting) -> None:
    """What is sent again to a new leader gets new numbers."""
    real = RequestWindow._resend

    def resend(self: RequestWindow, publisher: Any) -> None:
        if self._sent:
            planting.ran()
            self._next_sequence += len(self._sent)
        real(self, publisher)

    planting.replace(RequestWindow, "_resend", resend)


def _send_the_new_before_the_old(planting: Planting) -> None:
    """To a new leader goes what is new; what the one before had is taken for done."""

    def resend(self: RequestWindow, publisher: Any) -> None:
        self._must_resend = False
        if self._sent:
            planting.ran()

    planting.replace(RequestWindow, "_resend", resend)


def _swap_the_sessions_of_gathered_messages(planting: Planting) -> None:
    """Two messages that different connections brought in one pass are appended with each other's session."""
    real = GatheredIngress.take

    def take(self: GatheredIngress) -> None:
        connections, view, start = self._connections, self._ingress.view, 0
        places: list[tuple[int, int]] = []
        for index, end in enumerate(self._ends):
            prefix = connections[index].sole_prefix
            if prefix and view[start + HEADER_LENGTH : start + _PREFIX_END] == prefix:
                places.append((index, start + _PREFIX_END - 8))
            start = end
        for (one, here), (other, there) in pairwise(places):
            if connections[one] is not connections[other]:
                planting.ran()
                session_id = bytes(view[here : here + 8])
                view[here : here + 8] = view[there : there + 8]
                view[there : there + 8] = session_id
                connections[one], connections[other] = connections[other], connections[one]
                break
        real(self)

    planting.replace(GatheredIngress, "take", take)


_PREFIX_END = HEADER_LENGTH + PREFIX_LENGTH
_SEQUENCE_OFFSET = SESSION_ID_OFFSET + 16
"""Where a reply has the number of its request."""


def _hand_answers_to_another_session(planting: Planting) -> None:
    """On a shared connection the reply to one session goes to another one that waits for a reply of this number."""
    real = SharedLink._deliver

    def deliver(self: SharedLink, channel: SessionChannel, frames: memoryview) -> None:
        sequence = int.from_bytes(frames[_SEQUENCE_OFFSET : _SEQUENCE_OFFSET + 8], "little")
        is_reply = frames[KIND_OFFSET : KIND_OFFSET + 4] == SESSION_MESSAGE_KIND
        for other in self.channels.values() if is_reply else ():
            protocol = other.conductor.protocol
            waiting = {number for number, _ in protocol.requests._unanswered()}
            if other is not channel and sequence in waiting:
                planting.ran()
                data, session_id = bytearray(frames), protocol.session.cluster_session_id
                data[SESSION_ID_OFFSET : SESSION_ID_OFFSET + 8] = session_id.to_bytes(8, "little")
                real(self, other, memoryview(data))
                return
        real(self, channel, frames)

    planting.replace(SharedLink, "_deliver", deliver)


_RULES = (
    ("replies-gone-with-leader", 23, "replies outlive the leader that gave them", _drop_replies_with_the_leader),
    ("replies-not-replicated", 23, "every member keeps the replies", _keep_replies_on_the_leader_only),
    ("request-runs-again", 22, "a request that is sent again does not run again", _run_what_comes_again),
    ("request-numbered-anew", 22, "a request that is sent again keeps its number", _number_what_comes_again_anew),
    ("request-not-resent", 22, "a request without an answer is sent again", _send_the_new_before_the_old),
    ("unknown-called-rejected", 22, "only a request that never ran is rejected", _call_the_unknown_rejected),
    ("replies-dropped-early", 23, "a reply is kept until its client has it", _drop_replies_early),
    ("replies-not-in-snapshot", 23, "replies are in snapshots", _leave_replies_out_of_snapshots),
)

PLANTS = (
    *(
        Plant(name, class_number, rule, break_it, options=REQUEST_HUNT_OPTIONS)
        for name, class_number, rule, break_it in _RULES
    ),
    Plant(
        "answer-to-another-session",
        26,
        "an answer on a shared connection reaches the session that asked",
        _hand_answers_to_another_session,
        options=replace(REQUEST_HUNT_OPTIONS, requester_session_count=3),
    ),
    Plant(
        "gathered-for-another-session",
        22,
        "a message is appended for the session of the connection that brought it",
        _swap_the_sessions_of_gathered_messages,
        options=replace(HUNT_OPTIONS, client_count=8),
    ),
)

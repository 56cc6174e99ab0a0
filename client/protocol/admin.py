"""Admin requests: what a client asks of the cluster itself, over its session.

One asks for a snapshot. It goes to the leader, once; the answer comes when the snapshot is taken, or was not. When the
leader is lost before that, nobody can tell: asking again is harmless. The other asks the leader to hand over. It is
refused by an answer, and done when the client hears of the next leader.

`AdminTracker` is sans-IO, and `asking.take_snapshot` the coroutine around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...service_api.errors import BackPressureError, ClusterError
from ...service_api.types import ClusterSessionId, CorrelationId, TermId
from ...service_api.wire.session import (
    TRANSFER_TARGET,
    AdminRequest,
    AdminRequestType,
    AdminResponse,
    AdminResponseCode,
)
from ..errors import AdminRefusedError, IndeterminateError
from .egress_adapter import ClientSessionState
from .ingress_publisher import IngressPublisher

ADMIN_REQUEST_LIMIT: Final = 64
_UNKNOWN: Final = b"unknown"
_POSITION: Final = re.compile(rb"[0-9]{1,19}")

OnDone = Callable[[int | ClusterError], None]
"""Told the log position of what was done, the id of the member that leads after a hand-over, or why it was not done."""


@dataclass(slots=True, frozen=True)
class AdminWish:
    """What is asked for."""

    request_type: AdminRequestType
    target_member_id: int | None = None
    """Of a hand-over: who is to lead; None: any other member."""


SNAPSHOT_WISH: Final = AdminWish(AdminRequestType.SNAPSHOT)


class AdminTracker:
    """The admin requests of one session. Bound: `ADMIN_REQUEST_LIMIT` under way; more are refused."""

    def __init__(self, session: ClientSessionState) -> None:
        self._session = session
        self._waiting: dict[int, tuple[AdminWish, OnDone]] = {}
        self._next_correlation_id = 1

    def __repr__(self) -> str:
        return f"<AdminTracker waiting={len(self._waiting)}>"

    def begin(self, publisher: IngressPublisher, wish: AdminWish, on_done: OnDone) -> int:
        """Ask the leader; gives the number of the request.

        Raises:
            BackPressureError: too many are under way.
        """
        if len(self._waiting) >= ADMIN_REQUEST_LIMIT:
            raise BackPressureError(f"too many admin requests are pending: limit={ADMIN_REQUEST_LIMIT}")
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._waiting[correlation_id] = wish, on_done
        target_id = wish.target_member_id
        request = AdminRequest(
            leadership_term_id=TermId(self._session.leadership_term_id),
            cluster_session_id=ClusterSessionId(self._session.cluster_session_id),
            correlation_id=CorrelationId(correlation_id),
            request_type=wish.request_type,
            payload=b"" if target_id is None else TRANSFER_TARGET.pack(target_id),
        )
        publisher.publish(request.encode())
        return correlation_id

    def forget(self, correlation_id: int) -> None:
        """Forget a request: its caller no longer waits."""
        self._waiting.pop(correlation_id, None)

    def on_response(self, response: AdminResponse) -> bool:
        """Take an answer. False if it is to nothing that was asked."""
        if response.cluster_session_id != self._session.cluster_session_id:
            return False
        waiting = self._waiting.pop(response.correlation_id, None)
        if waiting is None:
            return False
        wish, on_done = waiting
        if wish.request_type is AdminRequestType.TRANSFER and response.response_code is AdminResponseCode.OK:
            self._waiting[response.correlation_id] = waiting  # the next leader says so itself
            return True
        step, _, position = response.payload.partition(b" ")
        if response.response_code is AdminResponseCode.OK:
            on_done(int(position) if _POSITION.fullmatch(position) else 0)
        elif step == _UNKNOWN:
            on_done(IndeterminateError(response.message))
        else:
            code = "UNKNOWN" if response.response_code is None else response.response_code.name
            on_done(AdminRefusedError(code, response.message))
        return True

    def fail(self, error: ClusterError, *, is_for_good: bool) -> None:
        """Fail every pending request: no answer will come; a hand-over only when no leader will be heard of either."""
        waiting = self._waiting
        self._waiting = {
            number: (wish, on_done)
            for number, (wish, on_done) in waiting.items()
            if wish.request_type is AdminRequestType.TRANSFER and not is_for_good
        }
        for number, (_, on_done) in waiting.items():
            if number not in self._waiting:
                on_done(error)

    def on_new_leader(self, leader_member_id: int) -> None:
        """Another member leads: that is the outcome of a hand-over."""
        for number, (wish, on_done) in [*self._waiting.items()]:
            if wish.request_type is AdminRequestType.TRANSFER:
                del self._waiting[number]
                is_done = wish.target_member_id in (None, leader_member_id)
                on_done(
                    leader_member_id if is_done else AdminRefusedError("ERROR", f"member {leader_member_id} leads now")
                )

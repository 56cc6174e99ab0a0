"""The paths of a typed command on a member: from a request in the log to the reply in the buffer of its session.

The command is the simplest one, with an int and one write to a dict of the state. A chunk is delivered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...cluster.service.agent import ClusteredServiceAgent
from ...cluster.service.double_execution import DoubledService
from ...cluster.service.kept_snapshot import run_without_waiting
from ...service_api import ClusteredService
from ...service_api.typed import Command, Context, TypedService, handles, state
from ...service_api.typed.codec import MessageCodec, ValueCodec
from ...service_api.types import ClusterSessionId, CorrelationId, MemberId, TimeUnit
from ...service_api.wire.log.messages import SessionOpenEvent
from ...service_api.wire.payload_header import PayloadKind
from .stand_ins import CHUNK_MESSAGES, TERM, TIMESTAMP_MS, ChunkPath, QuietModule

_SESSION = ClusterSessionId(1)


class Put(Command[int]):
    """Put an amount; replied with the same."""

    amount: int


class Amounts(TypedService):
    """Keeps the newest amount of each kind."""

    amounts: dict[int, int] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> int:
        """Write one key."""
        self.amounts[message.amount & 255] = message.amount
        return message.amount


class _Outlet:
    """Takes egress and drops it."""

    def write(self, data: bytes | bytearray) -> None:
        """Drop."""


def make_typed_paths() -> Mapping[str, Callable[[], ChunkPath]]:
    """The paths by name; see `make_paths`."""
    return {
        "typed_request": lambda: _deliver(Amounts()),
        "doubled_request": lambda: _deliver(DoubledService(Amounts(), Amounts)),
    }


def _deliver(service: ClusteredService) -> ChunkPath:
    module: Any = QuietModule()  # the rest of its methods is for entries that do not occur here
    agent = ClusteredServiceAgent(
        [service], module, member_id=MemberId(0), time_unit=TimeUnit.MILLIS, max_payload_length=1 << 20
    )
    agent.doubles = {0: service} if isinstance(service, DoubledService) else {}
    run_without_waiting(agent.start(), "on_start")
    agent.connect_egress(_SESSION, _Outlet(), TERM)
    agent.enter_messages()
    agent.on_session_open(
        SessionOpenEvent(
            leadership_term_id=TERM,
            correlation_id=CorrelationId(1),
            cluster_session_id=_SESSION,
            timestamp=TIMESTAMP_MS,
            response_stream_id=102,
        )
    )
    agent.leave_messages()
    codec = MessageCodec(Put, ValueCodec[int](int, "reply").schema)
    header = codec.header(PayloadKind.COMMAND)
    payloads = [memoryview(header + codec.encode(Put(n))) for n in range(1_000, 1_000 + CHUNK_MESSAGES)]
    session, on_request = agent.sessions[_SESSION], agent.requests.on_request
    sequence = 0

    def run() -> None:
        nonlocal sequence
        agent.enter_messages()
        for payload in payloads:
            sequence += 1
            on_request(session, TIMESTAMP_MS, sequence, sequence - 1, payload)
        agent.leave_messages()

    return run

"""The service that a simulation runs unless it is given another: registers that say where they were written.

A register holds the last eight values written to it, each with the log position of the write. Every answer holds what
the register held before the operation, so each operation tells of those before it: of a write that was lost, applied
twice or put in another place by a member, or that took effect although its client never heard so.

Request, little-endian:

    offset size
    0      1    kind, see RequestKind
    1      2    key
    3      4    sequence: counts the requests of a session from 1
    7      8    client id
    15     8    argument: the value to write, different in every request of a run
    23     8    expected: for COMPARE_AND_SET, the value written last; 0 for an empty register
    31     4    delay in milliseconds, for WRITE_LATER
    35     ..   padding, anything

Answer:

    0      1    status, see AnswerStatus
    1      4    sequence
    5      8    client id
    13     8    log position at which the request was applied
    21     1    how many values follow
    22     ..   value, log position of its write: 8 bytes each, oldest first

A session's requests are applied in order of their sequence, each once. One that comes again gets the answer it got
then. One that comes too early is not applied: its answer says GAP, and the client has to begin again at the first one
that is not answered. What comes through `on_request` needs none of that: the framework sees to it, and the simulation
sees whether it did.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from .....service_api import (
    ClientSession,
    CloseReason,
    Cluster,
    SnapshotImage,
    SnapshotPublication,
)
from .....service_api.types import TICKS_PER_MS
from .digesting_service import DigestingService

REQUEST: Final = struct.Struct("<BHIQqqI")
QUERY: Final = struct.Struct("<H")
"""A query: the key. Its answer is one to a request without client and sequence."""

ANSWER_LIMIT: Final = 256
"""Answers kept for a session: the most requests that a client may have unanswered."""

_ANSWERS_PER_MESSAGE: Final = 48
"""How many of them go into one message of a snapshot: a message must fit the smallest terms."""

VALUE_LIMIT: Final = 8
"""Values that a register holds; an older one is dropped."""

_ANSWER: Final = struct.Struct("<BIQqB")
_WRITE: Final = struct.Struct("<qq")


class RequestKind(IntEnum):
    """What a request asks for."""

    GET = 0
    PUT = 1
    """Write a value in place of all others."""
    COMPARE_AND_SET = 2
    """PUT, if the value written last is the expected one."""
    APPEND = 3
    """Write a value after the others."""
    WRITE_LATER = 4
    """Have a timer APPEND a value once cluster time has gone on by the delay."""
    CLOSE = 5
    """GET, and let the service close the session."""


class AnswerStatus(IntEnum):
    """What became of a request."""

    OK = 0
    MISMATCH = 1
    """COMPARE_AND_SET found another value, and wrote nothing."""
    GAP = 2
    """Not applied: requests before it are missing."""


class Write(NamedTuple):
    """One value in a register, and where it was written."""

    value: int
    log_position: int


class Request(NamedTuple):
    """What a client asks for."""

    kind: RequestKind
    key: int
    sequence: int
    client_id: int
    argument: int = 0
    expected: int = 0
    delay_ms: int = 0

    def encode(self, *, padding_length: int = 0) -> bytes:
        """Lay it out, with zeros after it."""
        return REQUEST.pack(*self) + bytes(padding_length)

    @classmethod
    def decode(cls, payload: memoryview | bytes) -> Request:
        """Read one; raises struct.error or ValueError if it is none."""
        kind, *rest = REQUEST.unpack_from(payload)
        return cls(RequestKind(kind), *rest)


class Answer(NamedTuple):
    """What a client is told."""

    status: AnswerStatus
    sequence: int
    client_id: int
    log_position: int
    writes: tuple[Write, ...] = ()
    """What the register held before."""

    def encode(self) -> bytes:
        """Lay it out."""
        header = _ANSWER.pack(*self[:4], len(self.writes))
        return header + b"".join(_WRITE.pack(*write) for write in self.writes)

    @classmethod
    def decode(cls, payload: memoryview | bytes) -> Answer:
        """Read one; raises struct.error or ValueError if it is none."""
        status, sequence, client_id, log_position, count = _ANSWER.unpack_from(payload)
        begin = _ANSWER.size
        writes = (Write(*_WRITE.unpack_from(payload, begin + index * _WRITE.size)) for index in range(count))
        return cls(AnswerStatus(status), sequence, client_id, log_position, tuple(writes))


@dataclass(slots=True)
class _Answers:
    """What one session has been told."""

    last_sequence: int = 0
    encoded: deque[bytes] = field(default_factory=lambda: deque(maxlen=ANSWER_LIMIT))
    """Of the last sequence and those before it."""

    def find(self, sequence: int) -> bytes | None:
        """The answer to a request that was applied; None if it is forgotten."""
        age = self.last_sequence - sequence
        return self.encoded[-1 - age] if age < len(self.encoded) else None


class _Timer(NamedTuple):
    """A value that will be written; its value is the timer's correlation id."""

    key: int
    deadline: int


class Registers(DigestingService):
    """Keyed registers; see the module's text."""

    def __init__(self) -> None:
        super().__init__()
        self.registers: dict[int, tuple[Write, ...]] = {}
        self._answers: dict[int, _Answers] = {}
        self._timers: dict[int, _Timer] = {}
        self._last_position = 0
        self._last_timestamp = 0

    def __repr__(self) -> str:
        return f"<Registers position={self._last_position} state={self.state_hash():016x} faults={len(self.faults)}>"

    # --- log entries

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        """Expect the session's first request."""
        self._on_entry(timestamp, "open", session.id)
        if session.id in self._answers:
            self.report(f"session_id={session.id} was opened twice")
        self._answers[session.id] = _Answers()

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Apply the session's next request, or answer once more."""
        self._on_entry(timestamp, "message", session.id, payload)
        try:
            request = Request.decode(payload)
        except (struct.error, ValueError):
            self.report(f"session_id={session.id} a message that is no request: length={len(payload)}")
            return
        answers = self._answers.get(session.id)
        if answers is None:
            self.report(f"session_id={session.id} a message of a session that is not open")
            return
        if not self.cluster.group.owns(request.key):
            self.report(f"session_id={session.id} key={request.key} a message about a key of another group")
            return
        answer: bytes | None
        if request.sequence <= answers.last_sequence:
            answer = answers.find(request.sequence)
        elif request.sequence == answers.last_sequence + 1:
            answer = self._apply(request, timestamp)
            answers.last_sequence = request.sequence
            answers.encoded.append(answer)
        else:
            position = self.cluster.log_position
            answer = Answer(AnswerStatus.GAP, request.sequence, request.client_id, position).encode()
        if answer is not None:
            self.absorb(answer)
            session.offer(answer)
        if request.kind is RequestKind.CLOSE:
            session.close()

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Apply a request, whatever its sequence; the reply is its answer."""
        self._on_entry(timestamp, "request", session.id, payload)
        try:
            request = Request.decode(payload)
        except (struct.error, ValueError):
            self.report(f"session_id={session.id} a request that is none: length={len(payload)}")
            return b""
        self.cluster.group.check_key(request.key)
        answer = self._apply(request, timestamp)
        self.absorb(answer)
        return answer

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Forget what the session was told."""
        self._on_entry(timestamp, "close", session.id, close_reason)
        if self._answers.pop(session.id, None) is None:
            self.report(f"session_id={session.id} was closed and is not open")

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        """Note a message of the service beside this one."""
        self._on_entry(timestamp, "service message", service_id, payload)

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """Write what was to be written later."""
        self._on_entry(timestamp, "timer", correlation_id)
        timer = self._timers.pop(correlation_id, None)
        if timer is None:
            self.report(f"correlation_id={correlation_id} a timer fired that was not set, or for the second time")
        elif timestamp < timer.deadline:
            self.report(f"correlation_id={correlation_id} fired at {timestamp}, early: deadline={timer.deadline}")
        else:
            self._append(timer.key, correlation_id)

    def on_new_leadership_term_event(self, **fields: Any) -> None:  # Any: as the callback has them
        """Note the term."""
        told = (fields[name] for name in ("leadership_term_id", "leader_member_id", "term_base_log_position"))
        self._on_entry(fields["timestamp"], "term", *told)

    # --- between log entries

    def on_query(self, payload: memoryview) -> bytes:
        """Return what a register holds."""
        (key,) = QUERY.unpack(payload)
        writes = self.registers.get(key, ())
        return Answer(AnswerStatus.OK, 0, 0, self.cluster.log_position, writes).encode()

    # --- snapshots

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the totals, then one message for each register, session and timer."""
        totals = ["totals", self.digest.hex(), self._last_position, self._last_timestamp]
        await snapshot.offer(json.dumps(totals).encode())
        for key, writes in self.registers.items():
            await snapshot.offer(json.dumps(["register", key, writes]).encode())
        for session_id, answers in self._answers.items():
            encoded = [answer.hex() for answer in answers.encoded]
            for begin in range(0, len(encoded) or 1, _ANSWERS_PER_MESSAGE):
                part = encoded[begin : begin + _ANSWERS_PER_MESSAGE]
                await snapshot.offer(json.dumps(["session", session_id, answers.last_sequence, part]).encode())
        for correlation_id, timer in self._timers.items():
            await snapshot.offer(json.dumps(["timer", correlation_id, *timer]).encode())

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load what `on_take_snapshot` wrote."""
        self.cluster = cluster
        if snapshot is None:
            return
        async for message in snapshot:
            match json.loads(message):
                case ["totals", digest, position, timestamp]:
                    self.digest, self._last_position, self._last_timestamp = bytes.fromhex(digest), position, timestamp
                case ["register", key, writes]:
                    self.registers[key] = tuple(Write(*write) for write in writes)
                case ["session", session_id, last_sequence, encoded]:
                    before = self._answers.get(session_id)
                    answers = deque(() if before is None else before.encoded, maxlen=ANSWER_LIMIT)
                    answers += [bytes.fromhex(answer) for answer in encoded]
                    self._answers[session_id] = _Answers(last_sequence, answers)
                case ["timer", correlation_id, key, deadline]:
                    self._timers[correlation_id] = _Timer(key, deadline)

    # --- inside

    def _apply(self, request: Request, timestamp: int) -> bytes:
        """Do what a request asks for; give its encoded answer."""
        before = self.registers.get(request.key, ())
        status = AnswerStatus.OK
        match request.kind:
            case RequestKind.PUT:
                self._write(request.key, (), request.argument)
            case RequestKind.APPEND:
                self._append(request.key, request.argument)
            case RequestKind.COMPARE_AND_SET if (before[-1].value if before else 0) == request.expected:
                self._write(request.key, (), request.argument)
            case RequestKind.COMPARE_AND_SET:
                status = AnswerStatus.MISMATCH
            case RequestKind.WRITE_LATER:
                deadline = timestamp + request.delay_ms * TICKS_PER_MS[self.cluster.time_unit]
                self._timers[request.argument] = _Timer(request.key, deadline)
                self.cluster.schedule_timer(request.argument, deadline)
            case RequestKind.GET | RequestKind.CLOSE:
                pass
        return Answer(status, request.sequence, request.client_id, self.cluster.log_position, before).encode()

    def _append(self, key: int, value: int) -> None:
        self._write(key, self.registers.get(key, ())[-(VALUE_LIMIT - 1) :], value)

    def _write(self, key: int, kept: tuple[Write, ...], value: int) -> None:
        self.registers[key] = (*kept, Write(value, self.cluster.log_position))

    def _on_entry(self, timestamp: int, kind: str, *what: int | memoryview) -> None:
        """Take an entry into the hash, and look at its place."""
        position = self.cluster.log_position
        if position <= self._last_position or position % 32:
            self.report(f"{kind}: log_position={position} after {self._last_position}")
        if timestamp < self._last_timestamp:
            self.report(f"{kind}: log_position={position} timestamp={timestamp} after {self._last_timestamp}")
        self._last_position, self._last_timestamp = position, timestamp
        self.absorb(position, timestamp, kind, *what)

"""The service of the system tests: an append-only list that remembers what it answered, and hashes all it was given.

A request is `sequence` (8 bytes, from 1 for each session) and a body. Requests of one session are applied in their
order, once each; the answer is the request's sequence, its place in the whole list and the hash of everything that
came before, itself included. A request that comes again gets its first answer again; one that comes too early is
refused with place -1. Some bodies ask for something: `CLOSE` closes the session, `FLOOD` sends many long messages.

What comes through `request` needs neither a sequence nor a memory: it is run once, and answered with its place.

The hash runs over every message in log order with its session and timestamp, so two members agree on it only if both
were given the same log. `AppendList` is the state alone: tests fold a recording into it and compare.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from trimaran.service_api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    SnapshotImage,
    SnapshotPublication,
)

REQUEST: Final = struct.Struct("<q")
ANSWER: Final = struct.Struct("<qq32s")
_HASHED: Final = struct.Struct("<32sqq")
_STATE: Final = struct.Struct("<q32sq")

CLOSE: Final = b"close"
FLOOD: Final = b"flood"
FLOOD_COUNT: Final = 256
FLOOD_LENGTH: Final = 64 << 10
ECHO_MIN_LENGTH: Final = 10_000
ECHO_END_LENGTH: Final = 1 << 20
"""Bodies of these lengths come back after the answer."""

TOO_EARLY: Final = -1
FLOODED: Final = -2


class Answer(NamedTuple):
    """What the service says about one request."""

    sequence: int
    place: int
    digest: bytes


@dataclass(slots=True)
class AppendList:
    """The replicated state."""

    place: int = 0
    digest: bytes = bytes(32)
    answers: dict[int, list[Answer]] = field(default_factory=dict)
    ran: dict[int, list[Answer]] = field(default_factory=dict)
    """By session, the answers to what came through `request`."""

    def run(self, session_id: int, timestamp: int, payload: bytes | memoryview) -> Answer:
        """Take one request that the framework runs once: there is nothing to look up."""
        self._absorb(session_id, timestamp, payload)
        ran = self.ran.setdefault(session_id, list[Answer]())
        self.place += 1
        ran.append(Answer(len(ran) + 1, self.place, self.digest))
        return ran[-1]

    def apply(self, session_id: int, timestamp: int, payload: bytes | memoryview) -> Answer:
        """Take one message of the log."""
        self._absorb(session_id, timestamp, payload)
        sequence: int = REQUEST.unpack_from(payload)[0]
        answers = self.answers.setdefault(session_id, list[Answer]())
        if sequence <= len(answers):
            return answers[sequence - 1]
        if sequence > len(answers) + 1:
            return Answer(sequence, TOO_EARLY, self.digest)
        self.place += 1
        answers.append(Answer(sequence, self.place, self.digest))
        return answers[-1]

    def _absorb(self, session_id: int, timestamp: int, payload: bytes | memoryview) -> None:
        hashed = hashlib.sha256(_HASHED.pack(self.digest, session_id, timestamp))
        hashed.update(payload)
        self.digest = hashed.digest()


class AppendListService(ClusteredService):
    """Runs the list; at its end it prints where it stood, for the test to compare."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self._cluster = cluster
        self._list = AppendList()
        if snapshot is None:
            return
        async for message in snapshot:
            place, digest, session_id = _STATE.unpack_from(message)
            self._list.place, self._list.digest = place, digest
            kept = self._list.answers if session_id > 0 else self._list.ran
            answers = kept.setdefault(abs(session_id), [])
            answers += (Answer(*found) for found in ANSWER.iter_unpack(message[_STATE.size :]))
        self._print("test_service.loaded")

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        state = self._list
        ran = {-session_id: answers for session_id, answers in state.ran.items()}
        for session_id, answers in (state.answers | ran).items():
            for begin in range(0, len(answers), 100):
                packed = b"".join(ANSWER.pack(*answer) for answer in answers[begin : begin + 100])
                await snapshot.offer(_STATE.pack(state.place, state.digest, session_id) + packed)

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self._print("test_session.opened", cluster_session_id=session.id)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        answer = self._list.apply(session.id, timestamp, payload)
        body = bytes(payload[REQUEST.size :])
        if body == FLOOD:
            for _ in range(FLOOD_COUNT):
                session.offer(ANSWER.pack(answer.sequence, FLOODED, answer.digest) + bytes(FLOOD_LENGTH))
        echo = body if ECHO_MIN_LENGTH <= len(body) < ECHO_END_LENGTH else b""
        session.offer(ANSWER.pack(*answer) + echo)
        if body == CLOSE:
            session.close()

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        return ANSWER.pack(*self._list.run(session.id, timestamp, payload))

    def on_query(self, payload: memoryview) -> bytes:
        if len(payload):
            raise ValueError(f"a query of length={len(payload)}")
        return ANSWER.pack(0, self._list.place, self._list.digest)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self._print("test_session.closed", cluster_session_id=session.id, close_reason=close_reason.name)

    def on_terminate(self, cluster: Cluster) -> None:
        self._print("test_service.terminated")

    def _print(self, event: str, **facts: object) -> None:
        state = {
            "place": self._list.place,
            "digest": self._list.digest.hex(),
            "log_position": self._cluster.log_position,
        }
        print(json.dumps({"event": event, **state, **facts}), file=sys.stderr, flush=True)

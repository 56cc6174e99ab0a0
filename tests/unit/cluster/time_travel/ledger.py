"""A small service that does all that a service can do, and says after each callback what its state is."""

from __future__ import annotations

import hashlib
import json
from typing import ClassVar

from trimaran.service_api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    SnapshotImage,
    SnapshotPublication,
)


class Ledger(ClusteredService):
    """Accounts. What a client sends is a word and its arguments; `digest` is a chain over every callback."""

    FEE_ABOVE: ClassVar[int | None] = None
    """Transfers above this cost 1: the rule that changes."""
    observed: ClassVar[dict[int, str] | None] = None
    """Where a test wants to know it, the digest at each log position of whoever runs here."""

    def __init__(self) -> None:
        self.balances: dict[str, int] = {}
        self.digest = ""
        self.timers_fired = 0
        self.cluster: Cluster

    def __repr__(self) -> str:
        return f"<Ledger accounts={len(self.balances)} total={sum(self.balances.values())} digest={self.digest[:8]}>"

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot is not None:
            messages = [json.loads(message) async for message in snapshot]
            self.digest, self.timers_fired = messages[0]
            self.balances = dict(messages[1:])

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(json.dumps([self.digest, self.timers_fired]).encode())
        for name, balance in self.balances.items():
            await snapshot.offer(json.dumps([name, balance]).encode())

    def on_session_open(self, session: ClientSession, timestamp: int) -> None:
        self.absorb("open", session.id, timestamp)

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.absorb("close", session.id, timestamp, close_reason)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.absorb("message", session.id, timestamp, bytes(payload))
        word, *arguments = str(payload, "ascii").split()
        if word == "timer":
            self.cluster.schedule_timer(int(arguments[0]), timestamp + int(arguments[1]))
        elif word == "cancel":
            self.cluster.cancel_timer(int(arguments[0]))
        elif word == "offer":
            self.cluster.offer(arguments[0].encode())
        elif word == "bye":
            session.close()
        elif word == "boom":
            raise ValueError(f"boom at {timestamp}")
        session.offer(payload)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.absorb("request", session.id, timestamp, bytes(payload))
        name, amount = str(payload, "ascii").split()
        self.balances[name] = self.balances.get(name, 0) + int(amount) - self.fee(int(amount))
        return json.dumps([self.cluster.log_position, self.balances[name], self.digest]).encode()

    def fee(self, amount: int) -> int:
        return int(self.FEE_ABOVE is not None and amount > self.FEE_ABOVE)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.absorb("service", service_id, timestamp, bytes(payload))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.absorb("timer", correlation_id, timestamp)
        self.timers_fired += 1
        for session in self.cluster.client_sessions.values():
            session.offer(b"timer %d" % correlation_id)

    def on_new_leadership_term_event(self, *, leadership_term_id: int, timestamp: int, **facts: object) -> None:
        self.absorb("term", leadership_term_id, timestamp)

    def absorb(self, *what: object) -> None:
        """Take what happened into the digest."""
        text = f"{self.digest} {what} {self.cluster.log_position} {self.cluster.time}"
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        if self.observed is not None:
            self.observed[self.cluster.log_position] = self.digest


class FeeLedger(Ledger):
    """The ledger under another rule."""

    FEE_ABOVE = 90

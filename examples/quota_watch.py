"""The quota, and a watch over who is refused: timers, names of clients, and a snapshot that holds more than one thing.

    trimaran node --service examples.quota_watch:QuotaWatch --authenticator examples.quota_watch:ByName ...

A host that is refused is watched until it has been quiet for a quarter of a second of cluster time: each refusal moves
its timer on. The decisions are those of `AccessQuota`, message for message. A plain message asks for the number of
refusals, which comes as egress. `ByName` lets every client in under the name that it gives as its credentials, so that
the log says who a session was; it proves nothing, so it is for examples only.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from examples.access_quota import AccessQuota
from trimaran.service_api import ClientSession, Cluster, SnapshotImage, SnapshotPublication
from trimaran.service_api.authenticator import SessionProxy

QUIET_MS = 250


class QuotaWatch(AccessQuota):
    """Decides as `AccessQuota` does, counts refusals, and watches the hosts that were refused."""

    def __init__(self) -> None:
        super().__init__()
        self.refused_count = 0
        self.calmed_count = 0
        """How often a watched host was quiet for long enough."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load the counts, then the hosts."""
        self.cluster = cluster
        if snapshot is None:
            return
        messages: list[Any] = [json.loads(message) async for message in snapshot]
        self.refused_count, self.calmed_count = messages[0]
        self.allowed_times = dict(messages[1:])

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """Write the counts first, then a message per host; the timers are in the cluster's own snapshot."""
        await snapshot.offer(json.dumps([self.refused_count, self.calmed_count]).encode())
        await super().on_take_snapshot(snapshot)

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        """Decide; a refusal sets the host's timer, or moves it on."""
        reply = super().on_request(session, timestamp, payload)
        if reply.startswith(b"denied"):
            self.refused_count += 1
            host = bytes(payload).partition(b"\t")[0]
            self.cluster.schedule_timer(timer_of(host), timestamp + QUIET_MS)
        return reply

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Tell how many requests were refused, whatever the message says."""
        session.offer(str(self.refused_count).encode())

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        """A host has been quiet."""
        self.calmed_count += 1


def timer_of(host: bytes) -> int:
    """Give the id of a host's timer, the same on every member and under other rules: a checksum of its name."""
    return zlib.crc32(host)


class ByName:
    """Lets everybody in under the name given: no proof is asked for."""

    def __init__(self) -> None:
        self._names: dict[int, bytes] = {}

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Keep the name."""
        self._names[session_id] = encoded_credentials

    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Let it in."""
        proxy.authenticate(self._names.pop(proxy.session_id, b""))

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Nobody is challenged."""

    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Nobody is challenged."""

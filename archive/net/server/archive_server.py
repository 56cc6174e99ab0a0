"""The TCP server of an archive: clients query, record, replay, edit and replicate its recordings.

One task per connection reads requests ([control_adapter.py]); what a connection streams is a second task in the same
group, so the end of either ends both. What outlives a connection is a replication: it belongs to the server. Bounds:
connections (more are refused by closing), replays, recordings and replications, each refused with its own code.

A cluster member serves its archive with the same class, for others to read: who may change it is decided by an
`AuthorisationService`, which says no unless the archive was meant to be written to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from ....service_api.access.audit import AuditTrail
from ....service_api.authenticator import AcceptAll, Authenticator
from ....service_api.authorisation import AuthorisationService
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import AcceptedConnection, ConnectionGate, GateLimits
from ....service_api.net.transport import SOCKETS, Listener, NetworkStack, Purpose
from ....service_api.types import NULL_VALUE
from ...store.conductor import Archive
from ...store.replay import ReplayLimit
from .control_adapter import serve_connection
from .control_session import READ_LENGTH_BYTES
from .policy import ReadOnly
from .server_state import ServerState

CONNECTION_LIMIT: Final = 64
REPLAY_LIMIT: Final = 64
RECORDING_LIMIT: Final = 64
REPLICATION_LIMIT: Final = 16
IDLE_TIMEOUT_S: Final = 10.0

_log = structlog.get_logger(__name__)


class ArchiveServer:
    """Accepts connections for one archive. `start` binds; `aclose` ends every session and waits for it.

    `authenticator` decides who may have a session, `authorisation` what a session may do; by default everybody may have
    one, and nobody may change anything. `replay_rate_limit_bytes_per_s` is that of each replay. `preallocate`
    zero-writes the segments of recordings ahead. Everything is listened on and dialled through `network`.
    `gate` is that of the process, which limits connections, and `audit` its audit trail, which has each change and what
    was refused; one of its own is made without. `cluster_id` gives the cluster that the archive is of, 0 while that is
    not known: who means another one is refused, but for `whole_cluster_id`, the cluster of which that is a group.
    Without it that is the cluster of the network's certificate. Replays may be bounded by `counters`, by id, as by
    recordings.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        authenticator: Authenticator | None = None,
        authorisation: AuthorisationService | None = None,
        archive_id: int = NULL_VALUE,
        connection_limit: int = CONNECTION_LIMIT,
        replay_limit: int = REPLAY_LIMIT,
        recording_limit: int = RECORDING_LIMIT,
        replication_limit: int = REPLICATION_LIMIT,
        replay_rate_limit_bytes_per_s: int | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        preallocate: bool = False,
        network: NetworkStack = SOCKETS,
        gate: ConnectionGate | None = None,
        audit: AuditTrail | None = None,
        cluster_id: Callable[[], int] | None = None,
        whole_cluster_id: int = 0,
        counters: Mapping[int, ReplayLimit] | None = None,
    ) -> None:
        self.state: Final = ServerState(
            archive=archive,
            authenticator=AcceptAll() if authenticator is None else authenticator,
            authorisation=ReadOnly() if authorisation is None else authorisation,
            archive_id=archive_id,
            replay_limit=replay_limit,
            recording_limit=recording_limit,
            replication_limit=replication_limit,
            replay_rate_limit_bytes_per_s=replay_rate_limit_bytes_per_s,
            idle_timeout_s=idle_timeout_s,
            preallocate=preallocate,
            network=network,
            cluster_id=(lambda: network.cluster_id) if cluster_id is None else cluster_id,
            whole_cluster_id=whole_cluster_id,
            audit=_make_audit_trail() if audit is None else audit,
            counters={} if counters is None else counters,
        )
        if gate is None:
            gate = ConnectionGate({Purpose.ARCHIVE: GateLimits.of_count(connection_limit)}, warn=_log.warning)
        self._gate = gate
        self._listener: Listener | None = None
        self._sessions: dict[asyncio.Task[Any], None] = {}
        """In order of connection: a set would be run through in the order of addresses in memory."""

    def __repr__(self) -> str:
        return f"<ArchiveServer connections={len(self._sessions)}>"

    async def start(self, endpoint: Endpoint) -> None:
        """Listen; port 0 takes a free one, which `endpoint` names afterwards.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._listener = await self.state.network.listen_for_streams(
            Purpose.ARCHIVE, endpoint, self._accept, gate=self._gate, limit_bytes=READ_LENGTH_BYTES
        )

    @property
    def endpoint(self) -> Endpoint:
        """What is listened on."""
        assert self._listener is not None
        return self._listener.endpoint

    async def aclose(self) -> None:
        """Stop listening, end every replication and session, and wait for them."""
        if self._listener is not None:
            self._listener.close()
        for replication in [*self.state.replications.values()]:
            await replication.stop()
        for task in self._sessions:
            task.cancel()
        if self._sessions:
            await asyncio.wait(list(self._sessions))
        if self._listener is not None:
            await self._listener.wait_closed()

    async def _accept(
        self, accepted: AcceptedConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run one connection from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        self._sessions[task] = None
        accepted.expect("control session", self.state.idle_timeout_s)
        try:
            await serve_connection(self.state, accepted, reader, writer)
        except asyncio.CancelledError:
            # Only `aclose` cancels; the task must end without an exception for the stream's own callback.
            pass
        finally:
            del self._sessions[task]
            writer.transport.abort()


def _make_audit_trail() -> AuditTrail:
    return AuditTrail(
        info=_log.info,
        warn=_log.warning,
        monotonic_ns=lambda: int(asyncio.get_running_loop().time() * 1e9),
    )

"""The TCP server of an archive: clients query, record, replay, edit and replicate its recordings.

One task per connection reads requests ([control_adapter.py]); what a connection streams is a second task in the same
group, so the end of either ends both. What outlives a connection is a replication: it belongs to the server. Bounds:
connections (more are refused by closing), replays, recordings and replications, each refused with its own code.

A cluster member serves its archive with the same class, for others to read: who may change it is decided by an
`AuthorisationService`, which says no unless the archive was meant to be written to.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import AcceptedConnection, ConnectionGate, GateLimits
from ....service_api.net.transport import Listener, Purpose
from .control_adapter import serve_connection
from .control_session import READ_LENGTH_BYTES
from .served_archive import ServedArchive

CONNECTION_LIMIT: Final = 64

_log = structlog.get_logger(__name__)


class ArchiveServer:
    """Accepts connections for one archive. `start` binds; `aclose` ends every session and waits for it.

    `gate` is that of the process, which limits connections.
    """

    def __init__(self, state: ServedArchive, *, gate: ConnectionGate | None = None) -> None:
        self.state: Final = state
        if gate is None:
            gate = ConnectionGate({Purpose.ARCHIVE: GateLimits.of_count(CONNECTION_LIMIT)}, warn=_log.warning)
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

"""Finds an `on_query` that changes the state, by comparing the state before and after each query.

A query runs on one member only, so what it changes, the others do not have. The comparison is for development:
`trimaran sim` does it, `trimaran up` for a service of yours, `trimaran node` with `check_queries`. It costs as much as
the state is large, so it takes a tenth of the time at most: after it, queries are answered without it for a while. A
service that undoes by itself what a query changes, as typed ones do, is never compared.

Compared is `state_hash`, where the service has one; else what the service writes to a snapshot in memory, up to
`_STATE_LIMIT_BYTES` of it. A service whose snapshot is longer, or waits for something while it is written, or fails, is
not checked: one log line says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from ...service_api import ClusteredService, LocalProtocolError
from .digests import digest_of
from .kept_snapshot import state_of

_STATE_LIMIT_BYTES: Final = 1 << 20
_SHOWN_BYTES: Final = 64
_REST_FACTOR: Final = 9
"""After a comparison there is none for so many times as long as it took."""

logger = structlog.get_logger()


class QueryCheck:
    """Runs the queries of one member's services."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._not_before_ns: int | None = None
        """From when on a query is checked again; None until one was."""
        self._is_rest_told = False
        self.last_change: str | None = None
        """The last query that changed the state; None if there was none."""
        self._unchecked: set[int] = set()
        """Services that are not checked, by `id`; they live as long as the member."""

    def __repr__(self) -> str:
        return f"<QueryCheck last_change={self.last_change}>"

    def run(self, service: ClusteredService, payload: memoryview, *, log_position: int) -> object:
        """Call `on_query`; its exceptions pass through, unless it has changed the state.

        Raises:
            LocalProtocolError: the state is not what it was before.
        """
        if service.undoes_queries or self._is_resting():
            return service.on_query(payload)
        began_ns = self._monotonic_ns()
        before = self._digest(service)
        spent_ns = self._monotonic_ns() - began_ns
        try:
            return service.on_query(payload)
        finally:
            began_ns = self._monotonic_ns()
            is_changed = before is not None and self._is_changed(service, before)
            now_ns = self._monotonic_ns()
            self._not_before_ns = now_ns + _REST_FACTOR * (now_ns - began_ns + spent_ns)
            if is_changed:
                query = bytes(payload[:_SHOWN_BYTES])
                self.last_change = (
                    f"on_query changed the state: service={service!r} query={query!r} log_position={log_position}"
                )
                logger.error("query.changed_state", service=repr(service), query=query, log_position=log_position)
                raise LocalProtocolError(
                    f"{self.last_change}; a query runs on one member only, so members differ now: leave the state as "
                    "it is in on_query, and change it in on_request or on_session_message; then restart this member"
                )

    def _is_resting(self) -> bool:
        """Return True while comparisons have had their share of the time. The first time, one log line says so."""
        is_resting = self._not_before_ns is not None and self._monotonic_ns() < self._not_before_ns
        if is_resting and not self._is_rest_told:
            self._is_rest_told = True
            logger.info("query.sampled", reason=f"comparing the state takes at most 1/{_REST_FACTOR + 1} of the time")
        return is_resting

    def _is_changed(self, service: ClusteredService, before: bytes) -> bool:
        """Whether the state is not what it was; a service that never writes the same twice says nothing."""
        after = self._digest(service)
        if after is None or after == before:
            return False
        if self._digest(service) == after:
            return True
        self._unchecked.add(id(service))
        logger.warning("query.not_checked", service=repr(service), error="its snapshots of one state differ")
        return False

    def _digest(self, service: ClusteredService) -> bytes | None:
        """Digest the state; None where that cannot be done."""
        if id(service) in self._unchecked:
            return None
        try:
            state = state_of(service, limit_bytes=_STATE_LIMIT_BYTES)
            if state is None:
                raise LocalProtocolError("no state_hash and no on_take_snapshot")
            return digest_of(state)
        except Exception as error:
            self._unchecked.add(id(service))
            logger.warning("query.not_checked", service=repr(service), error=repr(error))
            return None

"""Asking a cluster for a snapshot, and what its leader answers once the snapshot is taken, or was not.

The request is a connection to the leader's *consensus* endpoint whose setup frame names `SNAPSHOT_REQUEST_STREAM_ID`;
the answer is one data frame with a JSON document, as for a status. Whoever reaches that endpoint may ask. Requests that
come while one is under way wait for the same snapshot, so asking often costs no more than the snapshots themselves.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from service_api import ClusterError
from service_api.types import SNAPSHOT_REQUEST_STREAM_ID

from .status import Id, Line, Outcome, Position, StatusQueryError, query_document


class SnapshotAnswer(BaseModel):
    """What became of a request for a snapshot."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    member_id: Id
    """Who answers: only the leader takes requests."""
    log_position: Position | None
    """Where the log was when the snapshot was taken, on every member; None if it was not taken here."""
    detail: Line
    """Why it was not taken."""


async def request_snapshot(endpoint: str, timeout_s: float) -> SnapshotAnswer:
    """Ask the leader, at its consensus endpoint (`host:port`), for a snapshot; takes at most `timeout_s`.

    Raises:
        ConfigurationError: the endpoint is none.
        ClusterError: there was no answer; the snapshot may be taken or not.
    """
    try:
        payload = await query_document(endpoint, SNAPSHOT_REQUEST_STREAM_ID, timeout_s)
        return SnapshotAnswer.model_validate_json(payload)
    except StatusQueryError as error:
        if error.outcome in (Outcome.REFUSED, Outcome.UNREACHABLE):
            raise
        raise ClusterError(f"no answer about the snapshot: {error}; it may be taken or not") from error
    except ValidationError as error:
        raise ClusterError(f"not an answer about a snapshot: errors={error.error_count()}") from error

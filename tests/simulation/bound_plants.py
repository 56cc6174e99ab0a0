"""Planted bugs in what bounds the clients of a member: all of them together, and each in time."""

from __future__ import annotations

from trimaran.cluster.core.sessions.pending_sessions import PendingSessions
from trimaran.cluster.runtime.links.egress_tracker import EgressTracker
from trimaran.service_api.net.connection_gate import AcceptedConnection

from .plant import Plant, Planting


def _bound_egress_for_each_session_only(planting: Planting) -> None:
    """Each connection has its share of the egress limit, and nobody looks at their sum."""

    def make_room(self: EgressTracker) -> None:
        if self.waiting_bytes > self.limit_bytes:
            planting.ran()

    planting.replace(EgressTracker, "_make_room", make_room)


def _wait_for_ever_for_a_setup_frame(planting: Planting) -> None:
    """A new connection has all the time it wants."""
    real = AcceptedConnection.expect

    def expect(self: AcceptedConnection, what: str, within_s: float) -> None:
        if what == "setup frame":
            planting.ran()
        else:
            real(self, what, within_s)

    planting.replace(AcceptedConnection, "expect", expect)


def _give_one_client_all_sessions(planting: Planting) -> None:
    """A client has as many sessions as there are."""
    real = PendingSessions._problem_of

    def problem_of(self: PendingSessions, holder: bytes | str | None) -> str | None:
        if real(self, holder) is not None:
            planting.ran()
        return None

    planting.replace(PendingSessions, "_problem_of", problem_of)


PLANTS = (
    Plant(
        "egress-bound-per-session",
        29,
        "egress that waits is bounded for all clients together",
        _bound_egress_for_each_session_only,
        scenario="clients-that-read-nothing",
    ),
    Plant(
        "setup-deadline-ignored",
        29,
        "a connection that does not say what it is is ended",
        _wait_for_ever_for_a_setup_frame,
        scenario="connections-that-say-nothing",
    ),
    Plant(
        "session-share-ignored",
        29,
        "one client has its share of the sessions, and not all",
        _give_one_client_all_sessions,
        scenario="takes-all-sessions",
    ),
)

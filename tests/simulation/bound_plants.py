"""Planted bugs in what bounds the clients of a member: all of them together, and each in time."""

from __future__ import annotations

from trimaran.cluster.runtime.links.egress_tracker import EgressTracker
from trimaran.service_api.connection_gate import AcceptedConnection

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
)

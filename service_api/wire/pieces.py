"""How many bytes of the log are handled in one go, at the places where that decides who works at the same time.

Messages that are in flight together must not go round as one batch: then leader, followers and client would take turns,
each waiting for all others. So delivery and the client's receiving are cut into pieces. After each piece its results
are sent, and the receiver works while the next piece is handled. Smaller pieces cost more than they gain: a
pass of the event loop takes some 10 us on each member.
"""

from __future__ import annotations

from typing import Final

CLIENT_RECEIVE_BYTES: Final = 32 << 10
"""Client: received bytes that are handled before what was offered meanwhile is sent."""

LEADER_DELIVERY_BYTES: Final = 64 << 10
"""Leader: log that is delivered before its egress is sent and the loop looks at its sockets again.

Small enough that a client works on the first replies while the rest is delivered, and large enough that a pass of the
loop costs little in comparison.
"""

FOLLOWER_DELIVERY_BYTES: Final = 256 << 10
"""Follower: the same, where nobody waits for replies. 0.5 ms of short messages: a copied log costs fewer passes."""

CATCHUP_DELIVERY_BYTES: Final = 4 << 20
"""A member that no term needs: the same.

It is more than arrives in a pass. With less, delivery lags behind the window, and what was just received is read from
the archive and checked once more: a quarter of the cost of catching up.
"""

DELIVERY_RUN_BYTES: Final = 64 << 10
"""Every member: the most log that is delivered between two looks at the clock.

A slow service gets less: see `DeliveryBudget` in `trimaran.cluster.service.bounded_log_adapter`.
"""

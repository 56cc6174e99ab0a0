"""The services that `trimaran up` knows by name."""

from __future__ import annotations

from typing import Final, NamedTuple


class ReadyMade(NamedTuple):
    """A service that is ready to run."""

    target: str
    """Where its class is, as the setting `service` says it."""
    help: str
    """What it is, in one line."""


READY_MADE: Final = {
    "counters": ReadyMade(
        "trimaran.service_api.ready_made.counters:CounterService", "counters with bounds, and rate limits"
    ),
    "kv": ReadyMade(
        "trimaran.service_api.ready_made.kv:KvService", "a key-value store with transactions, TTLs and watches"
    ),
    "locks": ReadyMade(
        "trimaran.service_api.ready_made.locks:LockService", "locks with fencing tokens, leases, leader election"
    ),
    "queue": ReadyMade(
        "trimaran.service_api.ready_made.queue:QueueService",
        "queues with leases, retries and dead letters, and schedules",
    ),
}
"""By name, as `trimaran up` takes it."""

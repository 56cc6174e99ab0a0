"""The class that nodes of a campaign run: a subclass of the service under test that writes what it is given.

The service is named by an environment variable, so that one command line serves every service. It is subclassed, not
wrapped: whatever else the service has (`state_hash`, timers, properties) stays where the node looks for it.

`PLANT_VARIABLE` plants a bug, for tests that must see the campaign find it. Nothing but the campaign sets it.
"""

from __future__ import annotations

import copy
import os
import zlib
from collections.abc import Awaitable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

from ...cluster.settings.service_loading import load_service_class
from ...service_api import ClientSession, Cluster, ClusteredService, SnapshotImage
from ...service_api.tls import TlsStack
from .journal import JournalWriter

SERVICE_VARIABLE: Final = "CHAOS_SERVICE"
SERVICE_DIR_VARIABLE: Final = "CHAOS_SERVICE_DIR"
JOURNAL_VARIABLE: Final = "CHAOS_JOURNAL"
PLANT_VARIABLE: Final = "CHAOS_PLANT"
HASH_QUERY: Final = b"\x00trimaran chaos: state_hash"
"""A query that the probe answers: the state_hash of the service, or nothing where it has none."""

PROBED_SERVICE: Final = "trimaran.benchmarks.chaos.probe:ProbedService"
Bytes: TypeAlias = bytes | bytearray | memoryview
"""What a service may answer."""

_HEAD_LENGTH: Final = 16
_STATE: Final = ("registers", "lists", "last_id", "balances")
"""The attributes of the campaign's own service, which plants know."""
_PLANT_INTERVAL: Final = 40
"""Of the entries, one in so many is treated wrong."""


class Plant(StrEnum):
    """A bug on purpose."""

    LOSE_WRITE = "lose_write"
    """A request is answered as if it had run, and what it did is undone."""
    RUN_TWICE = "run_twice"
    """A request is run, and run again; the client is given the second answer."""
    STALE_READ = "stale_read"
    """A query is answered as the one before it was."""
    DIVERGE = "diverge"
    """One member runs a request that the others run once, twice."""
    NO_SYNC = "no_sync"
    """Members acknowledge what they have not synced (`file_sync_level` 0), while the checks expect that they do."""
    KEEP_CERTIFICATES = "keep_certificates"
    """Members go on with the certificates that they started with (`--modes tls`)."""


class _Probe(ClusteredService):
    """What is laid over the service under test; `chaos_base` is its class."""

    chaos_base: ClassVar[type[ClusteredService]]
    chaos_journal_path: ClassVar[Path | None]
    chaos_plant: ClassVar[Plant | None]

    def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> Awaitable[None] | None:
        self._chaos_cluster = cluster
        path = self.chaos_journal_path
        self._chaos_journal = None if path is None else JournalWriter(path)
        self._chaos_last_answer: dict[bytes, bytes] = {}
        return self.chaos_base.on_start(self, cluster, snapshot)

    def on_query(self, payload: memoryview) -> bytes:
        if bytes(payload) == HASH_QUERY:
            return _as_bytes(self.state_hash()) if self.has_state_hash else b""
        answer = self.chaos_base.on_query(self, payload)
        if self.chaos_plant is not Plant.STALE_READ:
            return answer
        what = bytes(payload[_HEAD_LENGTH:])
        stale = self._chaos_last_answer.get(what, answer)
        self._chaos_last_answer[what] = answer
        return answer[:_HEAD_LENGTH] + stale[_HEAD_LENGTH:]

    def chaos_run(self, session: ClientSession, timestamp: int, data: bytes) -> Bytes:
        """Run a request, with the bug that is planted."""
        run, view, plant = self.chaos_base.on_request, memoryview(data), self.chaos_plant
        if plant is None or zlib.crc32(data) % _PLANT_INTERVAL:
            return run(self, session, timestamp, view)
        if plant is Plant.LOSE_WRITE:
            state = {name: copy.deepcopy(vars(self)[name]) for name in _STATE}
            answer = run(self, session, timestamp, view)
            self.__dict__.update(state)
            return answer
        if plant is Plant.RUN_TWICE or (plant is Plant.DIVERGE and self._chaos_cluster.member_id == 1):
            run(self, session, timestamp, view)
        return run(self, session, timestamp, view)

    def chaos_note(self, session: ClientSession, data: bytes, answer: bytes | None, *, is_request: bool) -> None:
        """Write down what was given, and what was answered."""
        if self._chaos_journal is not None:
            position = self._chaos_cluster.log_position
            self._chaos_journal.note(position, session.id, data, answer, is_request=is_request)


def _on_request(self: _Probe, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
    data = bytes(payload)
    try:
        answer = bytes(self.chaos_run(session, timestamp, data))
    except (MemoryError, OSError):
        raise  # of this member alone: no answer
    except Exception as error:  # an answer, like any other
        self.chaos_note(session, data, f"{type(error).__name__}: {error}".encode(), is_request=True)
        raise
    self.chaos_note(session, data, answer, is_request=True)
    return answer


def _on_session_message(self: _Probe, session: ClientSession, timestamp: int, payload: memoryview) -> None:
    self.chaos_note(session, bytes(payload), None, is_request=False)
    self.chaos_base.on_session_message(self, session, timestamp, payload)


def make_probed_class(
    base: type[ClusteredService], journal_path: Path | None, plant: Plant | None
) -> type[ClusteredService]:
    """Make a subclass that does what its base does and writes it down; it has the callbacks that the base has."""
    content: dict[str, Any] = {  # a class's content
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "chaos_base": base,
        "chaos_journal_path": journal_path,
        "chaos_plant": plant,
    }
    if base.on_request is not ClusteredService.on_request:
        content["on_request"] = _on_request
    if base.on_session_message is not ClusteredService.on_session_message:
        content["on_session_message"] = _on_session_message
    return type(base.__name__, (_Probe, base), content)


def _as_bytes(value: object) -> bytes:
    """Return a state hash, whatever the service makes of it, as bytes that are equal where it is."""
    return value if isinstance(value, bytes) else repr(value).encode()


@cache
def _from_environment() -> type[ClusteredService]:
    base = load_service_class(os.environ[SERVICE_VARIABLE], Path(os.environ.get(SERVICE_DIR_VARIABLE, ".")))
    journal, plant = os.environ.get(JOURNAL_VARIABLE), os.environ.get(PLANT_VARIABLE)
    if plant == Plant.KEEP_CERTIFICATES:
        setattr(TlsStack, "renew", lambda stack: False)  # noqa: B010  # mypy takes no assignment to a method
    return make_probed_class(base, Path(journal) if journal else None, Plant(plant) if plant else None)


def __getattr__(name: str) -> Any:  # the class is made where a node asks for it, not where the module is imported
    if name == "ProbedService":
        return _from_environment()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Clients that stand over the session of a group, such as typed ones: groups make them and know no more of them."""

from __future__ import annotations

from typing import Protocol

from ..cluster_client import ClusterClient
from ..config import ClientConfig
from ..sync_client import SyncClusterClient


class OverClient(Protocol):
    """A client over a session that the groups keep."""

    cluster: ClusterClient

    def __init__(self, cluster: ClusterClient) -> None: ...


class SyncOverClient(Protocol):
    """A client that opens a session of its own, and is closed with the groups."""

    cluster: SyncClusterClient

    def __init__(self, *, config: ClientConfig | None) -> None: ...

    def close(self) -> None:
        """End the session."""

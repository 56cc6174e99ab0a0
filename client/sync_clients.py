"""The clients for scripts and notebooks: plain calls that block, from any thread.

A call wakes the loop of the client's thread and waits for it, which takes many times longer than an offer itself: a
program that needs tens of thousands of messages a second uses `ClusterClient`.
"""

from __future__ import annotations

from .blocking.groups import BlockingGroups
from .blocking.session import BlockingSession
from .blocking.shared import BlockingPool, BlockingShared
from .cluster_client import ClusterClient
from .groups import GroupedClient
from .shared import SessionPool, SharedConnection


class SyncClusterClient(BlockingSession, of=ClusterClient, without=("call_at_session_end", "forget_at_session_end")):
    """A session with the cluster, for code without asyncio.

        with SyncClusterClient.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as cluster:
            cluster.offer(b"1")
            print(cluster.receive(timeout_s=5).payload)

    It works in a notebook, too, where a loop runs in the main thread already. `with` is
    not needed: `close` it, or forget it, or end the interpreter, and the session is closed.

    Any thread may use it, several at once: each message that comes goes to one of them. What it promises is what
    `ClusterClient` promises. A fork of the process cannot use it, and its `close` does nothing there.
    """


class SyncSharedConnection(
    BlockingShared,
    of=SharedConnection,
    without=(
        *("attach", "look", "introduce", "find_channel", "channel_of_session", "on_link_idle"),
        *("defer", "defer_link"),
    ),
):
    """One connection to each member of a cluster, with any number of sessions on it, for code without asyncio.

        with SyncSharedConnection.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as shared:
            with shared.open_session(client_info="user 17") as cluster:
                reply = cluster.request(b"1", timeout_s=5)

    All sessions run in one thread. What it promises is what `SharedConnection` promises.
    """


class SyncSessionPool(BlockingPool, of=SessionPool):
    """Sessions over one shared connection, for threads that come and go: the handlers of a web server.

        with SyncSessionPool.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"], size=16) as pool:
            reply = pool.request(b"1", timeout_s=5)

    All sessions run in one thread. What it promises is what `SessionPool` promises.
    """


class SyncGroupedClient(BlockingGroups, of=GroupedClient):
    """Sessions with the groups of a cluster, for code without asyncio.

        with SyncGroupedClient.connect(["10.0.0.1:9000", "10.0.0.2:9000", "10.0.0.3:9000"]) as groups:
            print(groups.request("account-17", b"deposit 5", timeout_s=5))

    All sessions run in one thread. What it promises is what `GroupedClient` promises.
    """

"""A leader that dies in the middle of a fragmented message must not poison the log for everyone."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS, MTU, TERM_LENGTH, Node, whole_frames
from trimaran.cluster.core.log.log_publisher import LogPublisher


def lone_leader_with_half_a_message(*, room: int | None) -> Cluster:
    """A one-member cluster whose last leader left the first fragment of a message, and started again.

    With `room`, so many bytes are left in the log's term: the new leader has to pad before its first entry.
    """
    cluster = Cluster(1, member_count=1)
    cluster.start()
    cluster.run(500 * MS)
    (node,) = cluster.nodes.values()
    publisher = leader_publisher(node)
    if room is not None:
        while TERM_LENGTH - MTU - room - node.ctx.log_buffer.append_position % TERM_LENGTH:
            publisher.append_message(bytes.fromhex("180001006f001000") + bytes(24))
    node.flush()
    cluster.run(100 * MS)
    publisher.append_message(bytes.fromhex("180001006f001000") + bytes(24 + 225))
    (message,) = node.ctx.log_buffer.take_pending()
    cluster.crash(0)
    node.disk.log += whole_frames(message, 0, MTU)  # the first fragment reached the disk, the last did not
    cluster.start()
    return cluster


def leader_publisher(node: Node) -> LogPublisher:
    assert node.module.leader is not None
    return node.module.leader.publisher


@pytest.mark.parametrize("room", [None, 64])
def test_half_a_message_of_a_dead_leader_is_skipped(room: int | None) -> None:
    """The rest of it will never come: the next leader's first entry, or its padding, begins again.

    Without that every member stops at this position, again after every start: the cluster is lost.
    """
    cluster = lone_leader_with_half_a_message(room=room)
    (node,) = cluster.nodes.values()

    cluster.run(500 * MS)

    assert cluster.failures == []
    assert node.adapter.position == len(node.disk.log)

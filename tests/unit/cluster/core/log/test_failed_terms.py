"""A term that one member marked and no quorum ever entered: its mark must give way to what really happened there.

Member 2 won the ballot of term 5 at position 128 and reached nobody; the others went on in term 4 to 192 and lead on in
term 6. For them term 5 failed and is empty at 192. What member 2 has at 128..192 later is term 4's, whatever its mark
says: with the wrong mark it would, as a leader one day, tell others that term 4 ended at 128, and have them cut off
committed entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.cluster.core.harness import Cluster, terms_of
from tests.unit.cluster.core.node import MS, MTU, TERM_LENGTH, Disk
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.service_api.types import MemberId


def fill(disk: Disk, position: int, *terms: tuple[int, int], candidate_term_id: int) -> None:
    """Write a log of 32-byte-aligned messages of term 4 up to a position, and the marks of terms."""
    buffer = LogBuffer(position=0, retained_bytes=1 << 20)
    publisher = LogPublisher(
        buffer,
        log_session_id=1,
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=MTU,
        checksums=True,
    )
    while buffer.append_position < position:
        publisher.append_message(bytes.fromhex("180001006f001000") + bytes(24))
    disk.log += b"".join(buffer.take_pending())
    assert len(disk.log) == position
    write_terms(disk, terms)
    disk.candidate_term_id = candidate_term_id


def write_terms(disk: Disk, terms: Sequence[tuple[int, int]]) -> None:
    recording_log = RecordingLog()
    for term_id, base in terms:
        recording_log.append_term(recording_id=0, leadership_term_id=term_id, term_base_log_position=base, timestamp=0)
    disk.persist(recording_log)


def cluster_with_a_failed_term() -> Cluster:
    empty = tuple((term_id, 0) for term_id in range(4))
    cluster = Cluster(3)
    one, two, three = (node.disk for node in cluster.nodes.values())
    fill(one, 192, *empty, (4, 0), candidate_term_id=5)
    fill(two, 128, *empty, (4, 0), candidate_term_id=5)
    fill(three, 128, *empty, (4, 0), (5, 128), candidate_term_id=5)
    return cluster


def test_mark_of_a_failed_term_gives_way_to_the_leaders_history() -> None:
    """Every member's recording log must come to say the same of every term."""
    cluster = cluster_with_a_failed_term()
    cluster.start(0, 1)
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=3_000 * MS)

    cluster.start(2)
    cluster.settle()

    assert terms_of(cluster.nodes[MemberId(2)])[4:] == [(4, 0, 192), (5, 192, 192), (6, 192, -1)]


def test_mark_of_a_failed_term_gives_way_one_at_a_time() -> None:
    """Two failed terms at one position, which the leader knows as empty elsewhere."""
    cluster = cluster_with_a_failed_term()
    disk = cluster.nodes[MemberId(2)].disk = Disk()
    fill(disk, 128, *((term_id, 0) for term_id in range(5)), (5, 128), (6, 128), candidate_term_id=6)
    cluster.nodes[MemberId(1)].disk.candidate_term_id = 6
    cluster.start(0, 1)
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=3_000 * MS)

    cluster.start(2)
    cluster.settle()

    assert terms_of(cluster.nodes[MemberId(2)])[4:] == [(4, 0, 192), (5, 192, 192), (6, 192, 192), (7, 192, -1)]

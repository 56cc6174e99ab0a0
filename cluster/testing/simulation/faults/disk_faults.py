"""What goes wrong with the disks of a simulated cluster that stops nobody: they are slow, hang, or write in part.

And where a bit may be flipped: in a frame that is there, where a checksum or a rule protects it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, Member, SimulatedCluster
from trimaran.cluster.testing.simulation.world.object_store import StoreFault
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header

_MS: Final = 1_000_000


class DiskFaults:
    """Makes disks slow, and restores them after a while. Each fault returns whether there was a disk to strike."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        after: Callable[..., None],
        draw_member: Callable[[Random], Member],
        draw_duration_ns: Callable[[Random, float], int],
    ) -> None:
        self._cluster, self._after = cluster, after
        self._draw_member, self._draw_duration_ns = draw_member, draw_duration_ns
        for member in cluster.members.values():
            self.draw_timing(member)

    def __repr__(self) -> str:
        return f"<DiskFaults seed={self._cluster.seed}>"

    def draw_timing(self, member: Member) -> None:
        """Give a member's disk its ordinary speed: the same one whenever it is drawn."""
        random = Random(f"{self._cluster.world.seed} timing {member.member_id}")
        timing = member.machine.timing
        timing.min_ns = random.choice((30_000, 80_000, 400_000))
        timing.mean_ns = timing.min_ns * random.choice((2, 3, 8))

    def slow(self, random: Random) -> bool:
        """Syncs take milliseconds for a while."""
        member = self._draw_member(random)
        timing = member.machine.timing
        timing.min_ns, timing.mean_ns = 2 * _MS, random.choice((4, 15)) * _MS
        self._after(self._draw_duration_ns(random, 1.0), self.draw_timing, member)
        return True

    def stall(self, random: Random) -> bool:
        """A disk does nothing for a while."""
        timing = self._draw_member(random).machine.timing
        timing.stall_until_ns = self._cluster.now_ns + self._draw_duration_ns(random, 0.5)
        return True

    def short_write(self, random: Random) -> bool:
        """The disk takes less than it is given, for a while."""
        disk = self._draw_member(random).machine.disk
        disk.write_limit_bytes = random.choice((200, 400, 700))
        self._after(self._draw_duration_ns(random, 0.5), self._mend_writes, disk)
        return True

    def fail_store(self, random: Random) -> bool:
        """The object store fails in one way for a while; False while nobody uses it."""
        store, fault = self._cluster.store, random.choice([*StoreFault])
        store.strike(fault)
        self._after(self._draw_duration_ns(random, 0.7), store.mend)
        return bool(store.objects)

    def _mend_writes(self, disk: MemoryFileSystem) -> None:
        disk.write_limit_bytes = None


def draw_bit(begin: int, member: Member, random: Random) -> tuple[Path, int, int] | None:
    """Draw a bit of the frame at a position that its checksum or its rules protect: file, offset, and the bit."""
    segment_length, term_length = member.config.segment_length_bytes, member.config.term_length_bytes
    recording_id = 0 if member.node is None else member.node.module.ctx.log_recording_id
    offset = begin + random.randrange(64)
    bits = [bit for bit in range(8) if not _is_unprotected(offset - begin, bit)]
    base = begin - begin % segment_length
    path = Path(DIRECTORY / f"archive/{recording_id}-{base}.rec")
    header = member.machine.disk.durable_read(path, HEADER_LENGTH, begin - base)
    if not bits or begin // term_length != (begin + 96) // term_length or _is_padding(header):
        return None  # nobody reads padding: what is in it is copied, and means nothing
    return path, offset - base, 1 << random.choice(bits)


def _is_unprotected(frame_offset: int, bit: int) -> bool:
    """Return whether nothing protects this bit: as much of the frame length as alignment rounds away is in no checksum.

    A message of a session does not say how long it is, so a zero behind it may belong to it.
    """
    return frame_offset == 0 and bit < 5


def _is_padding(header: bytes) -> bool:
    """Whether a frame header is that of padding; what is too short is none."""
    return len(header) == HEADER_LENGTH and unpack_header(header, 0).type == TYPE_PADDING


def process_gone(name: str, path: object, length: int) -> None:
    """The process is gone: what it still tries to do must not reach the disk."""
    raise OSError(errno.EIO, "the process has ended", str(path))


def no_fault(name: str, path: object, length: int) -> None:
    """The disk does what it is asked."""

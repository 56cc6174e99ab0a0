"""One member's log for a test: a `LogControl` on a real archive in memory, and what it tells the core."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.unit.archive.streams import launch, small_config
from tests.unit.cluster.core.node import config
from tests.unit.cluster.core.rosters import configured
from tests.unit.cluster.runtime.fake_agent import FakeAgent
from tests.unit.cluster.runtime.fake_gate import AuditLines, let_in, quiet_gate
from tests.unit.cluster.runtime.fake_kernel import FakeKernel
from tests.unit.cluster.runtime.fake_transport import FakeTransport, receive
from trimaran.archive import Archive, Recording
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.cluster.runtime.files.copy_notes import CopyNotes
from trimaran.cluster.runtime.files.log_copies_file import LogCopiesFile
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.links.log_links import LogImage, LogSubscription
from trimaran.cluster.runtime.shared_machine.tuning import MachineTuning, SharedMachineTuning
from trimaran.cluster.runtime.turns.log_control import LogControl
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import LOG_STREAM_ID, MemberId, RecordingId
from trimaran.service_api.wire.link_frames import SetupFrame

TERM_LENGTH = 65536
SESSION = 77
ONE, TWO = MemberId(1), MemberId(2)
_T = TypeVar("_T")


@dataclass
class Member:
    """A `LogControl` with everything below it, and what it told the core."""

    control: LogControl
    ctx: ConsensusContext
    archive: Archive
    disk: MemoryFileSystem
    posted: list[object] = field(default_factory=list)
    recorded: list[int] = field(default_factory=list)
    failures: list[BaseException | None] = field(default_factory=list)

    def append(self, count: int, *, length: int = 32) -> bytes:
        """Append messages to the window, as a leader would, and give the bytes."""
        publisher = LogPublisher(
            self.ctx.log_buffer,
            log_session_id=SESSION,
            initial_term_id=0,
            term_length_bytes=TERM_LENGTH,
            mtu_length_bytes=1408,
            checksums=True,
        )
        begin = self.ctx.log_buffer.append_position
        for number in range(count):
            publisher.append_message(number.to_bytes(8, "little").ljust(length, b"."))
        return b"".join(self.ctx.log_buffer.chunks_from(begin))

    def events(self, kind: type[_T]) -> list[_T]:
        return [event for event in self.posted if isinstance(event, kind)]

    def connect(
        self, subscription: LogSubscription, *, position: int = 0, **layout: int
    ) -> tuple[LogImage, FakeTransport]:
        """Let the leader's link come in."""
        image, transport = subscription._make_image(let_in(quiet_gate(), Purpose.LOG)), FakeTransport()
        image.connection_made(transport)
        values: dict[str, Any] = {"term_length_bytes": TERM_LENGTH, "mtu_length_bytes": 1408, **layout}
        values.setdefault("member_id", ONE)
        setup = SetupFrame.at_position(position, session_id=SESSION, stream_id=LOG_STREAM_ID, **values)
        receive(image, setup.encode())
        return image, transport


def at(endpoint: object, member_id: int = 1) -> ConfiguredMember:
    """A member all of whose endpoints are the same."""
    where = str(endpoint)
    return ConfiguredMember(MemberId(member_id), MemberKind.VOTER, (where, where, where, where, where))


def _make_context(
    recording_log: RecordingLog, recording: Recording, others: Sequence[ConfiguredMember], *, retained_bytes: int
) -> ConsensusContext:
    return ConsensusContext(
        config=config(0, 2, term_length_bytes=TERM_LENGTH, mtu_length_bytes=1408),
        random=lambda: 0.5,
        recording_log=recording_log,
        log_recording_id=RecordingId(recording.recording_id),
        log_buffer=LogBuffer(position=recording.append_position, retained_bytes=retained_bytes),
        roster=Roster(
            MemberId(0),
            Configuration(members=(configured(0), *others), high_member_id=len(others), log_position=1),
        ),
        append_position=0,
        leader_member_id=ONE,
    )


@asynccontextmanager
async def member(
    peer: ConfiguredMember | None = None,
    *,
    start_position: int = 0,
    third: ConfiguredMember | None = None,
    retained_bytes: int = 1 << 20,
    spare_sync_delay_us: int = 0,
    tuning: MachineTuning | None = None,
) -> AsyncIterator[Member]:
    """One member's log, empty, with member 1 as its only peer unless there is a third member.

    What was before `start_position` has been purged.
    """
    disk = MemoryFileSystem()
    archive = await launch(disk, config=small_config(segment_length_bytes=2 * TERM_LENGTH))
    recording = await archive.start_recording(
        stream_id=100, session_id=-1, start_position=start_position, channel="c", source_identity="s"
    )
    directory = Path("/cluster")
    disk.make_directory(directory)
    recording_log_file = RecordingLogFile.open(directory, file_system=disk)
    async with ActivityScope() as tasks:
        ctx = _make_context(
            recording_log_file.recording_log,
            recording,
            [peer or at("127.0.0.1:1"), *([] if third is None else [third])],
            retained_bytes=retained_bytes,
        )
        agent = FakeAgent()
        host = FakeKernel().host(spare_sync_delay_us=spare_sync_delay_us)
        control = LogControl(
            ctx,
            archive,
            recording,
            network=SOCKETS,
            recording_log_file=recording_log_file,
            node_state_file=NodeStateFile.open(directory, file_system=disk),
            agent=agent,
            tasks=tasks,
            tuning=tuning
            or SharedMachineTuning(ctx, archive, host, is_disk_shared=True, on_failed=agent.failures.append),
            audit=AuditLines().audit,
            copy_notes=CopyNotes(
                ctx,
                LogCopiesFile(directory / "log-copies", ctx.log_copies, disk),
                network=SOCKETS,
                tasks=tasks,
                on_failed=agent.failures.append,
            ),
        )
        yield Member(control, ctx, archive, disk, agent.posted, agent.recorded, agent.failures)
    with contextlib.suppress(OSError):  # of a test that crashed the disk
        await archive.abandon()

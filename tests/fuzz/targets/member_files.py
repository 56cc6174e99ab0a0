"""The files of a member's directory beside its archive: recording.log, node-state.dat, marks, notes, snapshots."""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import cast

from tests.fuzz.disks import DIRECTORY, disk_with
from tests.fuzz.samples import make_sample
from tests.fuzz.target import expect, target
from tests.unit.cluster.core.node import config
from tests.unit.cluster.core.solo import Solo
from trimaran.archive.log.commit_proof import parse_marks
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.core.snapshots.snapshot import ModuleSnapshot, decode_module_snapshot
from trimaran.cluster.messages.mark import MarkFileHeader
from trimaran.cluster.messages.replies import KeptReply, SessionRequests
from trimaran.cluster.messages.snapshot import (
    CONSENSUS_MODULE_SNAPSHOT_TYPE_ID,
    SERVICE_SNAPSHOT_TYPE_ID,
    ClientSessionSnapshot,
    ClusterSessionSnapshot,
    ConsensusModuleSnapshot,
    ModuleMessage,
    PendingMessage,
    PendingMessageTracker,
    Timer,
)
from trimaran.cluster.runtime.files.cluster_id_file import CLUSTER_ID_FILE_NAME, ClusterIdFile
from trimaran.cluster.runtime.files.delivery_notes_file import DELIVERY_NOTES_FILE_NAME, DeliveryNotesFile
from trimaran.cluster.runtime.files.error_log import ErrorLog, ErrorObservation, read_errors
from trimaran.cluster.runtime.files.mark_file import MARK_FILE_NAME, ClusterMarkFile, DirectoryInUseError
from trimaran.cluster.runtime.files.node_state_file import NODE_STATE_FILE_NAME, NodeStateFile, parse_node_state
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.runtime.snapshots.recovery import (
    _decode_module_message,
    _decode_service_message,
    _load_container,
)
from trimaran.cluster.runtime.snapshots.snapshot_recording import SnapshotReader
from trimaran.cluster.service.replies import RequestRunner
from trimaran.service_api.errors import ClusterError, RemoteProtocolError
from trimaran.service_api.types import ClusterSessionId, CorrelationId, TermId, TimeUnit
from trimaran.service_api.wire.log.recording_log import (
    RECORDING_LOG_FILE_NAME,
    RecordingLogEntry,
    read_slots,
    slots_without_checksum,
    with_checksum,
)
from trimaran.service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker

SLOT = 64


# --- recording.log


def _recording_log_seeds() -> Iterator[bytes]:
    log = RecordingLog()
    log.append_term(recording_id=0, leadership_term_id=0, term_base_log_position=0, timestamp=1)
    log.append_term(recording_id=0, leadership_term_id=1, term_base_log_position=640, timestamp=2)
    for service_id in (0, -1):
        log.append_snapshot(
            RecordedSnapshot(
                recording_id=3 - service_id,
                leadership_term_id=1,
                term_base_log_position=640,
                log_position=960,
                timestamp=3,
                service_id=service_id,
            )
        )
    data = b"".join(write.data for write in log.take_writes())
    log.append_standby_snapshot(
        RecordedSnapshot(
            recording_id=9,
            leadership_term_id=1,
            term_base_log_position=640,
            log_position=960,
            timestamp=3,
            service_id=-1,
        ),
        archive_endpoint="standby.example:9004",
    )
    log.invalidate_latest_snapshot()
    for flags in (0, 1):
        yield bytes([flags]) + _stamp_slots(data)
        yield bytes([flags]) + data + b"".join(write.data for write in log.take_writes())


def _stamp_slots(data: bytes) -> bytes:
    """Give every slot the checksum of what it holds, so that checksums do not hide the other rules."""
    whole = len(data) // SLOT * SLOT
    slots = (with_checksum(data[start : start + SLOT], start) for start in range(0, whole, SLOT))
    return b"".join(slots) + data[whole:]


@target(_recording_log_seeds, length_limit=2048)
def recording_log(data: bytes) -> None:
    """recording.log: read by a member and by readers, its entries written again, its file mended."""
    content = _stamp_slots(data[1:]) if data[:1] == b"\1" else data[1:]
    try:
        entries = [slot for slot in read_slots(content) if isinstance(slot, RecordingLogEntry)]
        [*slots_without_checksum(content)]
        parse_marks(content)
    except RemoteProtocolError:
        return
    for entry in entries:
        (again,) = read_slots(entry.encode())
        assert isinstance(again, RecordingLogEntry)
        expect(again.encode() == entry.encode(), "an entry is read as it was written", entry=entry, again=again)
    disk = disk_with({RECORDING_LOG_FILE_NAME: content})
    try:
        file = RecordingLogFile.open(DIRECTORY, file_system=disk)
    except ClusterError:
        return
    log = file.recording_log
    log.recovery_plan(1)
    log.latest_service_count()
    log.latest_standby_snapshots(1)
    kept = log.entries
    file.close()
    again_file = RecordingLogFile.open(DIRECTORY, file_system=disk)
    expect(again_file.recording_log.entries == kept, "a file that was mended is read as before", kept=kept)
    _change(again_file)
    again_file.close()


def _change(file: RecordingLogFile) -> None:
    """Do what members and operators do to a log, and persist it."""
    log = file.recording_log
    with contextlib.suppress(ClusterError):  # the snapshot's term is not in the log
        log.invalidate_latest_snapshot()
    log.invalidate_snapshots(0, 1 << 62)
    log.remove_incomplete_snapshots(1)
    file.persist()


# --- node-state.dat


def _node_state_seeds() -> Iterator[bytes]:
    disk = disk_with({})
    file = NodeStateFile.open(DIRECTORY, file_system=disk)
    file.propose_max_candidate_term_id(7, 640, 1)
    file.close()
    content = disk.content(DIRECTORY / NODE_STATE_FILE_NAME)
    yield b"\0" + content[:128]
    yield b"\1" + content[:64]


@target(_node_state_seeds, length_limit=256)
def node_state(data: bytes) -> None:
    """node-state.dat: refused, or a term that never falls, however often it is opened."""
    content = data[1:]
    if data[:1] == b"\1" and len(content) >= 100:
        content = content[:96] + struct.pack("<I", zlib.crc32(content[:96])) + content[100:]
    try:
        candidate, _ = parse_node_state(content)
    except RemoteProtocolError:
        return
    disk = disk_with({NODE_STATE_FILE_NAME: content})
    file = NodeStateFile.open(DIRECTORY, file_system=disk)
    expect(file.candidate_term_id == candidate.candidate_term_id, "both readers find the same", file=file)
    if candidate.candidate_term_id < (1 << 63) - 1:
        higher = candidate.candidate_term_id + 1
        expect(file.propose_max_candidate_term_id(higher, 32, 9) == higher, "a term rises", file=file)
    before = file.candidate_term_id
    file.close()
    again = NodeStateFile.open(DIRECTORY, file_system=disk)
    expect(again.candidate_term_id == before, "a term is read as it was written", file=again)
    again.close()


# --- small files


def _mark_seeds() -> Iterator[bytes]:
    record = struct.pack("<iiqq", 24 + 16, 3, 2, 1) + b"warning a b at c"
    header = make_sample(MarkFileHeader, is_large=True).encode()
    yield header
    yield header.ljust(4096, b"\0") + b"boot".ljust(4096, b"\0") + record + bytes(16)


class _Area:
    """The error area of a mark file."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data.ljust(1 << 14, b"\0"))

    def read_error_area(self) -> bytes:
        """Read all of it."""
        return bytes(self.data)

    def write_error_area(self, data: bytes, offset: int) -> None:
        """Write at an offset in it."""
        self.data[offset : offset + len(data)] = data


@target(_mark_seeds, length_limit=8400)
def cluster_mark_file(data: bytes) -> None:
    """cluster-mark.dat: the header, and the error log, which goes on with what is there."""
    disk = disk_with({MARK_FILE_NAME: data})
    with contextlib.suppress(ClusterError):
        read_errors(DIRECTORY / MARK_FILE_NAME, file_system=disk)
    log = ErrorLog(_Area(data[8192:]), lambda: 5)
    log.observe(ErrorObservation("warning", "a", "b", "c", "message"))
    expect(log.observation_count == 1, "an error is counted", log=log)
    with contextlib.suppress(DirectoryInUseError):  # it cannot be understood, or Aeron runs
        file = ClusterMarkFile.open(DIRECTORY, member_id=1, now_ms=1, boot_id="boot", file_system=disk)
        file.confirm_boot()
        file.close()


def _note_seeds() -> Iterator[bytes]:
    yield b'{"failed": {"log_position": 96, "callback": "on_request", "failure": "x"}, "skipped": []}'
    yield b'{"failed": null, "skipped": [{"log_position": 96, "skip_log_position": 128}]}'
    yield b"3f9a0c12d45e77b1 " + b"%08x\n" % zlib.crc32(b"3f9a0c12d45e77b1")


@target(_note_seeds, length_limit=512)
def member_notes(data: bytes) -> None:
    """delivery-notes.json, which is begun again where it is damaged, and cluster-id, which is refused."""
    disk = disk_with({DELIVERY_NOTES_FILE_NAME: data, CLUSTER_ID_FILE_NAME: data})
    notes = DeliveryNotesFile.open(DIRECTORY, file_sync_level=1, file_system=disk)
    notes.note_skip(96, skip_log_position=128)
    again = DeliveryNotesFile.open(DIRECTORY, file_sync_level=1, file_system=disk)
    expect(again.skipped_entries == notes.skipped_entries, "notes are read as they were written", notes=again)
    with contextlib.suppress(ClusterError):
        ClusterIdFile.open(DIRECTORY, disk)


# --- snapshots


def _marker(type_id: int, mark: SnapshotMark) -> bytes:
    return SnapshotMarker(
        type_id=type_id,
        log_position=960,
        leadership_term_id=TermId(1),
        index=0,
        mark=mark,
        time_unit=TimeUnit.MILLIS,
        app_version=256,
    ).encode()


def _joined(messages: Iterable[bytes]) -> bytes:
    """Lay messages out one after the other, each after its length."""
    return b"".join(len(message).to_bytes(2, "little") + message for message in messages)


def _split(data: bytes) -> list[bytes]:
    messages, offset = [], 0
    while offset + 2 <= len(data):
        length = int.from_bytes(data[offset : offset + 2], "little")
        messages.append(data[offset + 2 : offset + 2 + length])
        offset += 2 + length
    return messages


def _module_seeds() -> Iterator[bytes]:
    base = -(1 << 63)
    session = make_sample(ClusterSessionSnapshot).encode()
    tracker = PendingMessageTracker(
        next_service_session_id=base + 3, log_service_session_id=base + 1, pending_message_capacity=0, service_id=0
    )
    module = ConsensusModuleSnapshot(
        next_session_id=4, next_service_session_id=base + 3, log_service_session_id=base + 1
    )
    yield _joined(
        [
            _marker(CONSENSUS_MODULE_SNAPSHOT_TYPE_ID, SnapshotMark.BEGIN),
            module.encode(),
            session,
            Timer(correlation_id=CorrelationId(5), deadline=99).encode(),
            tracker.encode(),
            PendingMessage(base + 2, b"hello").encode(),
            _marker(CONSENSUS_MODULE_SNAPSHOT_TYPE_ID, SnapshotMark.END),
        ]
    )


@target(_module_seeds, length_limit=2048)
def module_snapshot(data: bytes) -> None:
    """The snapshot of a consensus module, taken over by one and written again."""
    try:
        messages: list[ModuleMessage] = [_decode_module_message(encoded) for encoded in _split(data)]
        snapshot = decode_module_snapshot(messages)
    except RemoteProtocolError:
        return
    for message in messages:
        message.encode()
    _restore(snapshot)


def _restore(snapshot: ModuleSnapshot) -> None:
    """Start a member from a snapshot, as a node does that has one service, and have it take one again."""
    if any(state.service_id >= config(0, 3).service_count for state in snapshot.trackers):
        return  # `read_snapshots` refuses it
    solo = Solo(is_started=False)
    solo.module.snapshots.restore(snapshot, (), 0)
    solo.start()
    solo.wait(100_000_000)


def _container_seeds() -> Iterator[bytes]:
    yield _joined(
        [
            _marker(SERVICE_SNAPSHOT_TYPE_ID, SnapshotMark.BEGIN),
            make_sample(ClientSessionSnapshot).encode(),
            SessionRequests(cluster_session_id=ClusterSessionId(0), first_sequence=1, reply_count=2).encode(),
            KeptReply(code=0, payload=b"yes").encode(),
            KeptReply(code=1, payload=b"no").encode(),
            _marker(SERVICE_SNAPSHOT_TYPE_ID, SnapshotMark.END),
        ]
    )


class _Image:
    """The messages of a snapshot, as `SnapshotReader` gives them."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = iter(messages)

    def unusable(self, reason: str) -> Exception:
        """Make the error of a snapshot that is not valid."""
        return ClusterError(reason)

    async def decode(self, decode: object) -> object:
        """Decode the next message."""
        data = next(self._messages, None)
        try:
            return None if data is None else _decode_service_message(data)
        except RemoteProtocolError as error:
            raise self.unusable(str(error)) from error


@target(_container_seeds, length_limit=2048)
def container_snapshot(data: bytes) -> None:
    """What a service container writes into a snapshot: its sessions, and the replies that it keeps."""
    loading = _load_container(cast(SnapshotReader, _Image(_split(data))), (960, 1), TimeUnit.MILLIS)
    try:
        loading.send(None)
    except StopIteration as done:
        _, replies = done.value
    except ClusterError:
        return
    receiver = SimpleNamespace(takes_requests=True)
    runner = RequestRunner(receiver, max_reply_length=1024, on_service_error=lambda error: None)
    runner.restore(replies)
    for message in runner.snapshot_messages():
        message.encode()

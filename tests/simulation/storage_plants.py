"""Planted bugs in what is written, synced, cut, repaired and read back."""

from __future__ import annotations

import errno
from dataclasses import asdict, replace
from typing import Any

from trimaran.archive.disk import file_system
from trimaran.archive.disk.file_system import FileSystem, WritableBytes
from trimaran.archive.errors import ArchiveError
from trimaran.archive.files import catalog
from trimaran.archive.files.catalog import Catalog
from trimaran.archive.files.segment_files import Segment, SegmentFiles
from trimaran.archive.format import frame_rules as archive_frame_rules
from trimaran.archive.format import layout
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.format.frame_rules import frame_rules_of
from trimaran.archive.store import opening, range_reader, recording, repair
from trimaran.archive.store.conductor import Archive
from trimaran.archive.store.recording import Recording
from trimaran.archive.store.repair import RepairResult
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.cluster.core.roles.transfer import TransferControl
from trimaran.cluster.core.vocabulary.configuration import ConfigurationHistory
from trimaran.cluster.node.node import Node
from trimaran.cluster.runtime.files import node_state_file, recording_log_file
from trimaran.cluster.runtime.files.node_state_file import NodeStateFile
from trimaran.cluster.runtime.ground.agent_door import NodeEnd
from trimaran.service_api.wire import frame_rules
from trimaran.service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, FrameHeader, ReadableBuffer, unpack_header
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.log.log_rules import Before, what_follows

from .plant import Plant, Planting

# --- 2: the small files


def _sync_no_votes(planting: Planting) -> None:
    planting.replace(node_state_file, "sync_at_level", lambda *_: planting.ran())


def _sync_no_marks(planting: Planting) -> None:
    planting.replace(recording_log_file, "sync_at_level", lambda *_: planting.ran())


def _write_the_node_state_anew(planting: Planting) -> None:
    """The file is emptied and then written: a member that dies between these has none."""
    real = NodeStateFile.propose_max_candidate_term_id

    def propose(self: NodeStateFile, candidate_term_id: int, log_position: int, timestamp_ms: int) -> Any:
        if candidate_term_id > self.candidate_term_id:
            planting.ran()
            disk, handle = self._file_system, self._handle
            data = disk.pread(handle, disk.file_length(handle), 0)
            disk.set_length(handle, 0)
            disk.sync_file(handle)
            disk.pwrite(handle, data, 0)
        return real(self, candidate_term_id, log_position, timestamp_ms)

    planting.replace(NodeStateFile, "propose_max_candidate_term_id", propose)


# --- 3: writes


def _count_short_writes_as_whole(planting: Planting) -> None:
    real_init = Recording.__init__

    def init(self: Recording, *args: Any, **facts: Any) -> None:  # passed on as they come
        real_init(self, *args, **facts)
        real = self._pwrite

        def pwrite(handle: int, data: WritableBytes, offset: int) -> int:
            if real(handle, data, offset) != len(data):
                planting.ran()
            return len(data)

        self._pwrite = pwrite

    def write_once(disk: FileSystem, handle: int, data: WritableBytes, offset: int) -> None:
        if disk.pwrite(handle, data, offset) != len(data):
            planting.ran()

    planting.replace(Recording, "__init__", init)
    planting.replace(recording, "write_fully", write_once)


def _go_on_after_a_failed_write(planting: Planting) -> None:
    real_init, real_write_fully = Recording.__init__, file_system.write_fully

    def init(self: Recording, *args: Any, **facts: Any) -> None:  # passed on as they come
        real_init(self, *args, **facts)
        real = self._pwrite

        def pwrite(handle: int, data: WritableBytes, offset: int) -> int:
            try:
                return real(handle, data, offset)
            except OSError:
                planting.ran()
                return len(data)

        self._pwrite = pwrite

    def write_fully(*args: Any) -> None:  # passed on as they come
        try:
            real_write_fully(*args)
        except OSError:
            planting.ran()

    planting.replace(Recording, "__init__", init)
    planting.replace(recording, "write_fully", write_fully)


def _believe_torn_frames(planting: Planting) -> None:
    """The tail is walked by frame headers only: a frame whose payload never reached the disk counts."""

    def header_rules_of(descriptor: RecordingDescriptor) -> FrameRules:
        planting.ran()
        return frame_rules_of(descriptor, checksummed=False)

    planting.replace(repair, "frame_rules_of", header_rules_of)
    for name in ("_refuse_if_undecidable", "_find_following_frame"):
        if hasattr(repair._SegmentWalker, name):
            planting.replace(repair._SegmentWalker, name, lambda *_, **__: None)


# --- 4: syncs


def _ignore_failed_syncs(planting: Planting) -> None:
    real = SegmentFiles.sync

    def sync(self: SegmentFiles, segment: Segment) -> None:
        try:
            real(self, segment)
        except OSError:
            planting.ran()

    planting.replace(SegmentFiles, "sync", sync)


def _try_syncs_again(planting: Planting) -> None:
    real = SegmentFiles.sync

    def sync(self: SegmentFiles, segment: Segment) -> None:
        try:
            real(self, segment)
        except OSError:
            planting.ran()
            real(self, segment)

    planting.replace(SegmentFiles, "sync", sync)


def _sync_nothing(planting: Planting) -> None:
    planting.replace(SegmentFiles, "sync", lambda *_: planting.ran())


def _sync_no_names(planting: Planting) -> None:
    """A new segment gets its name, and the directory is not synced."""

    def publish(self: SegmentFiles, segment: Segment) -> None:
        planting.ran()
        name = layout.segment_file_name(self.recording_id, segment.base_position)
        self.file_system.rename(self.directory / segment.name, self.directory / name)
        segment.name, segment.named = name, True

    planting.replace(SegmentFiles, "publish", publish)


def _sync_only_the_newest_segment(planting: Planting) -> None:
    """A batch that goes over the end of a segment syncs the new one only."""
    real = SegmentFiles.sync
    real_submit = Recording._submit_batch

    def submit(self: Recording, *args: Any) -> None:  # passed on as they come
        newest = self._segments[-1]

        def sync(files: SegmentFiles, segment: Segment) -> None:
            if segment.base_position < newest.base_position and len(self._segments) > 1:
                planting.ran()
                return
            real(files, segment)

        planting.replace(SegmentFiles, "sync", sync)
        real_submit(self, *args)

    planting.replace(Recording, "_submit_batch", submit)


# --- 5, 6: corruption


def _end_at_corruption(planting: Planting) -> None:
    """A frame that is not valid is the end of the log, whatever follows."""
    real = repair._SegmentWalker._find_following_frame

    def find_none(self: Any, *args: Any) -> None:  # the walker is private to its module
        if real(self, *args) is not None:
            planting.ran()

    planting.replace(repair._SegmentWalker, "_find_following_frame", find_none)


def _read_without_looking(planting: Planting) -> None:
    """What is read back from the recording goes by its headers: the payload is taken as it is."""
    real = range_reader._valid_frames_length

    def valid_frames_length(rules: FrameRules, data: bytes, position: int, before: Before) -> tuple[int, Before]:
        found = real(replace(rules, checksummed=False), data, position, before)
        if found != real(rules, data, position, before):
            planting.ran()
        return found

    planting.replace(range_reader, "_valid_frames_length", valid_frames_length)


def _take_any_padding(planting: Planting) -> None:
    """Padding is taken for padding, also where its bytes have the checksum in its header, as a data frame's do."""
    real_fault, real_skip = FrameRules.find_checksum_fault, FrameRules.skip_valid_frames

    def find_checksum_fault(self: FrameRules, header: FrameHeader, buffer: ReadableBuffer, offset: int) -> str | None:
        fault = real_fault(self, header, buffer, offset)
        if fault is None or header.type != TYPE_PADDING:
            return fault
        planting.ran()
        return None

    def skip_valid_frames(
        self: FrameRules, buffer: ReadableBuffer, offset: int, position: int, end: int, before: Before = Before.UNKNOWN
    ) -> tuple[int, int | None, Before]:
        following, last, before = real_skip(self, buffer, offset, position, end, before)
        while following + HEADER_LENGTH <= end:
            header, at = unpack_header(buffer, following), position + following - offset
            if (
                header.type != TYPE_PADDING
                or following + header.aligned_length > end
                or self.find_header_fault(header, at) is not None
                or real_fault(self, header, buffer, following) is None
            ):
                break
            planting.ran()
            last, following = following, following + header.aligned_length
            more, last_of_more, before = real_skip(
                self, buffer, following, position + following - offset, end, Before.UNKNOWN
            )
            following, last = more, last if last_of_more is None else last_of_more
        return following, last, before

    planting.replace(FrameRules, "find_checksum_fault", find_checksum_fault)
    planting.replace(FrameRules, "skip_valid_frames", skip_valid_frames)


def _take_any_flags(planting: Planting) -> None:
    """The flags and the reserved value of a log's frames are taken as those of an application's are."""
    _say_nothing(planting, "find_flags_fault")


def _take_any_order(planting: Planting) -> None:
    """Each frame of a log is judged by itself, whatever lies before it."""
    _say_nothing(planting, "find_order_fault")


def _take_snapshots_for_an_applications(planting: Planting) -> None:
    """A snapshot is judged as any recording is whose flags an application chooses."""

    def is_ruled_snapshot(descriptor: RecordingDescriptor) -> bool:
        planting.ran()
        return False

    planting.replace(archive_frame_rules, "is_ruled_snapshot", is_ruled_snapshot)


def _say_nothing(planting: Planting, rule: str) -> None:
    real = getattr(frame_rules, rule)

    def find_no_fault(*args: Any, **named: Any) -> None:  # passed on as they come
        if real(*args, **named) is not None:
            planting.ran()

    planting.replace(frame_rules, rule, find_no_fault)


def _take_any_length(planting: Planting) -> None:
    """A frame of a log may end before its message does."""
    real = FrameRules._skip_frames_of_one_length
    _say_nothing(planting, "find_length_fault")

    def skip(self: FrameRules, *args: Any) -> int:  # passed on as they come
        following = real(replace(self, is_cluster_log=False), *args)
        if following != real(self, *args):
            planting.ran()
        return following

    planting.replace(FrameRules, "_skip_frames_of_one_length", skip)


def _take_any_version(planting: Planting) -> None:
    """A follower does not look at the version of a frame that it receives: its own start calls that frame damage."""
    real_init = LogReceiver.__init__

    class Lenient(FrameRules):
        def skip_valid_frames(
            self,
            buffer: ReadableBuffer,
            offset: int,
            position: int,
            end: int,
            before: Before = Before.UNKNOWN,
        ) -> tuple[int, int | None, Before]:
            following, last, after = super().skip_valid_frames(buffer, offset, position, end, before)
            header = unpack_header(buffer, offset)
            known = header._replace(version=0)
            is_whole = offset + header.aligned_length <= end
            if last is not None or known == header or not is_whole or self.find_header_fault(known, position):
                return following, last, after
            planting.ran()
            return offset + header.aligned_length, offset, what_follows(header, before)

    def init(self: LogReceiver, log_buffer: LogBuffer, rules: FrameRules, history: ConfigurationHistory) -> None:
        real_init(self, log_buffer, Lenient(**asdict(rules)), history)

    planting.replace(LogReceiver, "__init__", init)


# --- 8, 12: cuts and ends


def _leave_old_bytes_behind_a_cut(planting: Planting) -> None:
    def clean_after(self: SegmentFiles, base_position: int, stop_position: int) -> bool:
        planting.ran()
        return False

    planting.replace(SegmentFiles, "clean_after", clean_after)


def _stop_a_frame_too_far(planting: Planting) -> None:
    """After a crash the recording ends one header after its last valid frame."""
    real = repair.repair_tail

    def repair_tail(files: SegmentFiles, descriptor: RecordingDescriptor, **facts: Any) -> RepairResult:
        result = real(files, descriptor, **facts)
        if result.stop_position % descriptor.term_buffer_length == 0:
            return result
        planting.ran()
        return replace(result, stop_position=result.stop_position + 32)

    planting.replace(opening, "repair_tail", repair_tail)


def _stop_a_segment_too_early(planting: Planting) -> None:
    """After a crash the newest segment counts for nothing."""
    real = repair.repair_tail

    def repair_tail(files: SegmentFiles, descriptor: RecordingDescriptor, **facts: Any) -> RepairResult:
        result = real(files, descriptor, **facts)
        base = descriptor.segment_base_position(result.stop_position)
        if base == result.stop_position or base <= descriptor.start_position:
            return result
        planting.ran()
        files.remove_from(base)
        return replace(result, stop_position=base)

    planting.replace(opening, "repair_tail", repair_tail)


def _recover_without_syncing(planting: Planting) -> None:
    """The end that a start finds may be in the page cache only, and is reported."""
    real = SegmentFiles.clean_after

    def clean_after(self: SegmentFiles, base_position: int, stop_position: int) -> bool:
        planting.ran()
        kept, self.sync_level = self.sync_level, 0
        try:
            return real(self, base_position, stop_position)
        finally:
            self.sync_level = kept

    planting.replace(SegmentFiles, "clean_after", clean_after)


# --- 32, 33: restarts, a full disk


def _forget_that_a_recording_goes_on(planting: Planting) -> None:
    """The catalog is not synced: after a power loss it may say that the log ends where an earlier process left it."""
    planting.replace(catalog.Catalog, "_sync", lambda *_: planting.ran())


def _keep_the_old_stop_position(planting: Planting) -> None:
    """A recording that is extended keeps its stop position, and the next start believes it."""
    real = Catalog.update

    def update(self: Catalog, descriptor: RecordingDescriptor) -> None:
        if descriptor.stop_position is None:
            planting.ran()
            offset, _ = self._entries[descriptor.recording_id]
            self._entries[descriptor.recording_id] = offset, descriptor
            return
        real(self, descriptor)

    planting.replace(Catalog, "update", update)


def _stop_in_order_too_far(planting: Planting) -> None:
    """A member that stops in order writes a stop position beyond its last frame."""
    real = Archive._on_stopped

    async def on_stopped(self: Archive, stopped: Recording) -> None:
        planting.ran()
        if (stopped.recorded_position + 32) % stopped.descriptor.term_buffer_length:
            stopped.recorded_position += 32
        await real(self, stopped)

    planting.replace(Archive, "_on_stopped", on_stopped)


def _drop_what_a_full_disk_refuses(planting: Planting) -> None:
    """Where there is no room for the next segment, the recording goes on at the end of the one that it has."""
    real = Recording._roll

    def roll(self: Recording, base_position: int) -> None:
        try:
            real(self, base_position)
        except Exception as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno != errno.ENOSPC:
                raise
            planting.ran()
            self._segments[-1].base_position = base_position

    planting.replace(Recording, "_roll", roll)


# --- 35: what is recorded is what was live


def _record_other_bytes(planting: Planting) -> None:
    """What comes while a batch is in flight is recorded in another order than it was delivered in."""
    real = Recording.append

    def append(self: Recording, chunk: bytes) -> None:
        held = self._held.chunks
        real(self, chunk)
        if len(held) > 1 and len(held[-1]) == len(held[-2]):
            planting.ran()
            held[-1], held[-2] = held[-2], held[-1]

    planting.replace(Recording, "append", append)


# --- 27: damage that somebody reads


def _end_the_node_at_a_read_of_damage(planting: Planting) -> None:
    real = Node.run

    async def run(self: Node) -> NodeEnd:
        damage, observe = self.archive.damage, self.archive.damage.on_failed_read

        def on_failed_read(error: ArchiveError, descriptor: RecordingDescriptor, position: int) -> None:
            planting.ran()
            observe(error, descriptor, position)
            self.agent.terminate(error)

        damage.on_failed_read = on_failed_read  # type: ignore[method-assign]
        return await real(self)

    planting.replace(Node, "run", run)


def _lead_on_with_a_damaged_log(planting: Planting) -> None:
    planting.replace(TransferControl, "on_log_unreadable", lambda *_: planting.ran())


PLANTS = (
    Plant(
        "damage-ends-the-node",
        27,
        "a read of damage ends that read, and never the node",
        _end_the_node_at_a_read_of_damage,
        "damaged-leader",
    ),
    Plant(
        "damaged-leader-leads-on",
        27,
        "a leader that cannot give a member its log hands its term over",
        _lead_on_with_a_damaged_log,
        "damaged-leader",
    ),
    Plant("vote-not-synced", 2, "a vote is synced before it is sent", _sync_no_votes),
    Plant("mark-not-synced", 2, "the mark of a term is synced before it is acknowledged", _sync_no_marks),
    Plant(
        "node-state-anew",
        2,
        "the node state file is replaced as a whole",
        _write_the_node_state_anew,
        "election-by-steps",
    ),
    Plant("short-write-is-whole", 3, "a short write is completed", _count_short_writes_as_whole),
    Plant("write-error-ignored", 3, "a failed write stops the member", _go_on_after_a_failed_write),
    Plant("torn-frame-believed", 3, "a torn frame at the end is cut off", _believe_torn_frames),
    Plant("sync-error-ignored", 4, "a failed sync stops the member", _ignore_failed_syncs),
    Plant("sync-tried-again", 4, "a failed sync is never tried again", _try_syncs_again),
    Plant("sync-skipped", 4, "a position is synced before it is reported", _sync_nothing),
    Plant("name-not-synced", 4, "a segment's name is durable before data in it counts", _sync_no_names),
    Plant("roll-not-synced", 4, "a batch syncs every segment that it wrote", _sync_only_the_newest_segment),
    Plant("corruption-is-the-end", 5, "corruption with valid frames after it is no torn tail", _end_at_corruption),
    Plant(
        "corrupt-frames-delivered",
        6,
        "a frame that is not valid is not delivered",
        _read_without_looking,
        "flipped-bit",
    ),
    Plant(
        "padding-was-data",
        6,
        "padding whose bytes have its checksum was a data frame",
        _take_any_padding,
        "data-turned-padding",
    ),
    Plant("any-flags", 6, "a log has flags and reserved values of leaders only", _take_any_flags, "reserved-value"),
    Plant(
        "snapshot-any-flags",
        6,
        "a snapshot has flags and reserved values of members only",
        _take_snapshots_for_an_applications,
        "reserved-value-of-snapshot",
    ),
    Plant(
        "any-order",
        6,
        "a fragment follows a fragment, and a message follows the end of one",
        _take_any_order,
        "entry-without-beginning",
    ),
    Plant("any-length", 6, "a frame of a log ends where its message does", _take_any_length, "entry-too-short"),
    Plant(
        "gate-skips-a-rule",
        6,
        "a follower accepts no frame that its own start would call damage",
        _take_any_version,
        "changed-frame",
    ),
    Plant("cut-leaves-bytes", 8, "nothing but zeros follows the end of a recording", _leave_old_bytes_behind_a_cut),
    Plant("repair-too-far", 12, "a recording ends after its last valid frame", _stop_a_frame_too_far),
    Plant("repair-too-early", 12, "a recording is repaired to its last valid frame", _stop_a_segment_too_early),
    Plant("tail-not-synced", 32, "a start syncs the log that it found before it reports it", _recover_without_syncing),
    Plant("catalog-not-synced", 32, "the catalog is durable before the log goes on", _forget_that_a_recording_goes_on),
    Plant("stop-position-kept", 32, "a recording that is extended has no stop position", _keep_the_old_stop_position),
    Plant("stop-too-far", 32, "a recording that is stopped ends after its last frame", _stop_in_order_too_far),
    Plant(
        "full-disk-overwrites",
        33,
        "a member without room for its log stops",
        _drop_what_a_full_disk_refuses,
        "full-disk",
    ),
    Plant("recorded-out-of-order", 35, "the recording has the order of the log", _record_other_bytes),
)

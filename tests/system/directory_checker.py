"""An independent reader of a member's directory, and every rule that its files must keep.

Written from the description of Aeron's layouts alone and with nothing of ours imported, so that a mistake in the
product's reader and writer cannot hide behind itself. `check_directory` walks all files and raises one
`DirectoryFault` that lists everything found wrong.
"""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import Final

from tests.system.directory_views import LOG_STREAM_ID, Frame
from tests.system.directory_views import DirectoryFault as DirectoryFault
from tests.system.directory_views import DirectoryReport as DirectoryReport
from tests.system.directory_views import Message as Message
from tests.system.directory_views import RecordingView as RecordingView
from tests.system.recording_log_checker import check_recording_log
from tests.system.snapshot_checker import check_log_and_snapshots
from tests.system.state_file_checker import check_archive_mark, check_cluster_mark, check_node_state

CATALOG_VERSION: Final = 0x0003_0100
TERM_LENGTHS: Final = (1 << 16, 1 << 30)
MTU_LIMIT: Final = 65504

_FRAME: Final = struct.Struct("<iBBHiiiiq")
_CATALOG_ENTRY: Final = struct.Struct("<iii20s")
_DESCRIPTOR: Final = struct.Struct("<qqqqqqqiiiiii")
_ARCHIVE_FILES: Final = (
    *("archive.catalog", "archive.catalog.redo", "archive.edit", "archive-mark.dat"),
    *("cold-cache", "cold-storage.json"),
)
_SEGMENT_NAME: Final = re.compile(r"(\d+)-(\d+)\.rec")
_WORKING_NAME: Final = re.compile(r"(\d+)-(\d+)\.rec\.(next|zero)")


def check_directory(
    directory: Path, *, stopped: bool = True, by_aeron: bool = False, is_imported: bool = False
) -> DirectoryReport:
    """Check every file of a member that does not run; `stopped` says that its last process ended in order.

    `by_aeron` leaves out what we promise and Aeron does not: a candidate term never below a term that was followed.
    `is_imported` says that no member has run here yet: there are no mark files.

    Raises:
        DirectoryFault: with every fault.
    """
    faults: list[str] = []
    archive = directory / "archive"
    recordings = _check_catalog((archive / "archive.catalog").read_bytes(), faults, stopped=stopped)
    for recording in recordings:
        _check_segments(archive, recording, faults, stopped=stopped)
        _check_frames(recording, faults)
    _check_no_strays(archive, recordings, faults, stopped=stopped)
    terms, snapshots, invalid_ids = check_recording_log(
        (directory / "cluster" / "recording.log").read_bytes(), recordings, faults
    )
    named = {term.recording_id for term in terms}
    for log in recordings:
        is_before_seed = not all(entry.log_position for entry in snapshots) and log.recording_id not in named
        if log.stream_id == LOG_STREAM_ID and not is_before_seed:
            others = [recording for recording in recordings if recording.recording_id not in invalid_ids]
            check_log_and_snapshots(log, others, terms, snapshots, faults, by_aeron=by_aeron)
    if (directory / "cluster" / "backup-status.json").exists():  # nobody votes in a backup
        if faults:
            raise DirectoryFault(f"{directory}:\n  " + "\n  ".join(faults))
        return DirectoryReport(directory, recordings, terms, snapshots, -1)
    node_state = (directory / "cluster" / "node-state.dat").read_bytes()
    candidate_term_id = check_node_state(node_state, faults, by_aeron=by_aeron)
    if not is_imported:
        check_cluster_mark((directory / "cluster" / "cluster-mark.dat").read_bytes(), faults, stopped=stopped)
        check_archive_mark((archive / "archive-mark.dat").read_bytes(), faults, stopped=stopped)
    has_no_vote = candidate_term_id == -1  # it follows a term before it may vote, and may stop in order meanwhile
    if not by_aeron and not has_no_vote and terms and candidate_term_id < terms[-1].leadership_term_id:
        faults.append(f"node-state.dat: candidate_term_id={candidate_term_id} below {terms[-1]}")
    if faults:
        raise DirectoryFault(f"{directory}:\n  " + "\n  ".join(faults))
    return DirectoryReport(directory, recordings, terms, snapshots, candidate_term_id)


def log_end_position(directory: Path) -> int:
    """Find where the frames of the log end now, also of a member that is running."""
    archive = directory / "archive"
    found = [name for name in map(_SEGMENT_NAME.fullmatch, _names(archive)) if name]
    for recording_id in sorted({int(name[1]) for name in found}, reverse=True):
        bases = sorted(int(name[2]) for name in found if int(name[1]) == recording_id)
        for base in reversed(bases):
            end = _frames_end(archive / f"{recording_id}-{base}.rec")
            if end:
                return base + end
    return 0


def _frames_end(path: Path) -> int:
    """Find where the frames of a segment of the log end; 0 if it has none, or is of another stream."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0  # purged just now
    offset = 0
    while offset + 32 <= len(data):
        frame_length, stream_id = (
            struct.unpack_from("<i", data, offset)[0],
            struct.unpack_from("<i", data, offset + 16)[0],
        )
        if frame_length <= 0 or stream_id != LOG_STREAM_ID:
            break
        offset += -(-frame_length // 32) * 32
    return offset


def _checksum(recording: RecordingView, data: bytes) -> int:
    return _crc32c(data) if recording.is_crc32c else zlib.crc32(data)


def _crc32c(data: bytes) -> int:
    """CRC-32C as RFC 3720 has it, a byte at a time."""
    register = 0xFFFF_FFFF
    for byte in data:
        register = _CRC32C_TABLE[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFF_FFFF


def _crc32c_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F6_3B78 if value & 1 else 0)
    return value


_CRC32C_TABLE: Final = tuple(map(_crc32c_entry, range(256)))


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _check_catalog(data: bytes, faults: list[str], *, stopped: bool) -> list[RecordingView]:
    version, header_length, next_recording_id, alignment = struct.unpack_from("<iiqi", data)
    if (version, header_length, alignment) != (CATALOG_VERSION, 32, 64) or any(data[20:32]):
        faults.append(f"catalog header: version={version:#x} length={header_length} alignment={alignment}")
    recordings: list[RecordingView] = []
    ids: list[int] = []
    offset = 32
    while offset + 32 <= len(data):
        length, state, checksum, reserved = _CATALOG_ENTRY.unpack_from(data, offset)
        if length <= 0:
            break
        if (32 + length) % 64 or offset + 32 + length > len(data):
            faults.append(f"catalog entry at {offset}: length={length}")
            break
        body = data[offset + 32 : offset + 32 + length]
        is_crc32c = bool(checksum) and checksum & 0xFFFF_FFFF == _crc32c(body)
        if checksum and not is_crc32c and checksum & 0xFFFF_FFFF != zlib.crc32(body):
            faults.append(f"catalog entry at {offset}: checksum={checksum} does not match")
        if any(reserved):
            faults.append(f"catalog entry at {offset}: header ends with {reserved.hex()}, expected zeros")
        if state not in (1, 2):
            faults.append(f"catalog entry at {offset}: state={state}, expected VALID or DELETED")
        recording = _read_descriptor(body, faults, is_checksummed=bool(checksum), stopped=stopped and state == 1)
        recording.is_crc32c = is_crc32c
        ids.append(recording.recording_id)
        if state == 1:
            recordings.append(recording)
        offset += 32 + length
    if any(data[offset:]):
        faults.append(f"catalog: bytes other than zero after the last entry at {offset}")
    if ids != sorted(set(ids)) or next_recording_id <= max(ids, default=-1):
        faults.append(f"catalog: recording ids {ids}, next is {next_recording_id}")
    return recordings


def _read_descriptor(body: bytes, faults: list[str], *, is_checksummed: bool, stopped: bool) -> RecordingView:
    (_, _, recording_id, start_time, stop_time, start, stop, initial_term_id, segment, term, mtu, _, stream_id) = (
        _DESCRIPTOR.unpack_from(body)
    )
    offset = _DESCRIPTOR.size
    for _ in range(3):
        (text_length,) = struct.unpack_from("<I", body, offset)
        text = body[offset + 4 : offset + 4 + text_length]
        if len(text) != text_length or not text.isascii():
            faults.append(
                f"recording {recording_id}: text of {text_length} bytes at {offset} is not ASCII or not whole"
            )
            break
        offset += 4 + text_length
    if any(body[offset:]) or 32 + len(body) != -(-(32 + offset) // 64) * 64:
        faults.append(f"recording {recording_id}: entry of {len(body)} bytes is not padded with zeros to 64")
    if not TERM_LENGTHS[0] <= term <= TERM_LENGTHS[1] or term & (term - 1):
        faults.append(f"recording {recording_id}: term_length={term}")
    elif segment < term or segment % term or mtu % 32 or not 32 < mtu <= min(MTU_LIMIT, term // 8):
        faults.append(f"recording {recording_id}: segment_length={segment} mtu_length={mtu} term_length={term}")
    if start < 0 or start % 32 or start_time <= 0 or (stop != -1 and (stop < start or stop % 32)):
        faults.append(f"recording {recording_id}: start_position={start} start_time={start_time} stop_position={stop}")
    if stopped and (stop < 0 or stop_time < start_time):
        faults.append(f"recording {recording_id}: stop_position={stop} stop_timestamp={stop_time} after an orderly end")
    return RecordingView(
        recording_id=recording_id,
        start_position=start,
        stop_position=None if stop == -1 else stop,
        initial_term_id=initial_term_id,
        segment_length=segment,
        term_length=term,
        mtu_length=mtu,
        stream_id=stream_id,
        is_checksummed=is_checksummed,
    )


def _check_segments(archive: Path, recording: RecordingView, faults: list[str], *, stopped: bool) -> None:
    """Hold the files against the layout, and read the bytes from the start to the end of the frames."""
    what = f"recording {recording.recording_id}"
    first = recording.start_position - recording.start_position % recording.term_length
    names = [found for found in map(_SEGMENT_NAME.fullmatch, _names(archive)) if found]
    bases = sorted(int(found[2]) for found in names if int(found[1]) == recording.recording_id)
    if bases != [first + index * recording.segment_length for index in range(len(bases))]:
        faults.append(f"{what}: segments {bases} do not adjoin from {first} in steps of {recording.segment_length}")
        return
    files = [(archive / f"{recording.recording_id}-{base}.rec").read_bytes() for base in bases]
    for base, data in zip(bases, files, strict=True):
        if len(data) != recording.segment_length:
            faults.append(f"{what}: segment {base} is {len(data)} bytes long, expected {recording.segment_length}")
    data = b"".join(files)
    if any(data[: recording.start_position - first]):
        faults.append(f"{what}: bytes other than zero before start_position={recording.start_position}")
    data = data[recording.start_position - first :]
    end = recording.stop_position
    if end is None:
        recording.data = data[: _find_end(recording, data)]
        return
    length = end - recording.start_position
    recording.data = data[:length]
    if length > len(data):
        faults.append(f"{what}: stop_position={end} lies after the last segment file")
    if any(data[length:]):
        faults.append(f"{what}: bytes other than zero after stop_position={end}")
    if stopped and first + len(files) * recording.segment_length <= end:
        faults.append(f"{what}: stop_position={end} fills a segment and there is no next one")
    if stopped and end < (bases[-1] if bases else first):
        faults.append(f"{what}: segment {bases[-1]} was left behind stop_position={end}")


def _find_end(recording: RecordingView, data: bytes) -> int:
    """Follow the frames of a recording without stop position: a torn one, or none, is the end."""
    offset = 0
    while offset + 32 <= len(data):
        frame_length, _, _, frame_type, _, checksum, *_ = _FRAME.unpack_from(data, offset)
        aligned = -(-frame_length // 32) * 32
        if frame_length <= 0 or offset + aligned > len(data):
            break
        is_torn = _checksum(recording, data[offset + 32 : offset + aligned]) != checksum & 0xFFFF_FFFF
        if recording.is_checksummed and frame_type == 1 and is_torn:
            break
        offset += aligned
    return offset


def _check_frames(recording: RecordingView, faults: list[str]) -> None:
    """Check every frame, and the rules that tie frames to messages and messages to terms."""
    data, term_length = recording.data, recording.term_length
    offset, is_inside, run_length, padding_length = 0, False, 0, 0
    while offset < len(data):
        position = recording.start_position + offset
        header = _FRAME.unpack_from(data, offset)
        frame_length, version, flags, frame_type, term_offset, checksum, stream_id, term_id, reserved = header
        aligned = -(-frame_length // 32) * 32
        fault = ""
        if frame_length < 32 or offset + aligned > len(data):
            faults.append(f"recording {recording.recording_id} position={position}: frame_length={frame_length}")
            return
        if (version, reserved, stream_id) != (0, 0, recording.stream_id) or frame_type not in (0, 1):
            fault = f"header {header}"
        expected_term_id = (recording.initial_term_id + position // term_length + 2**31) % 2**32 - 2**31
        if (term_offset, term_id) != (position % term_length, expected_term_id):
            fault = f"term_offset={term_offset} term_id={term_id}"
        if term_offset + aligned > term_length:
            fault = "frame crosses a term"
        body = data[offset + 32 : offset + aligned]
        if frame_type == 0:
            is_entry = frame_length == 32  # what a leader appends for a member that has lost its vote
            is_end = term_offset + frame_length == term_length
            if not (is_end or is_entry) or flags != 0xC0 or any(body) or is_inside:
                fault = f"padding of {frame_length} with flags={flags:#x} inside_message={is_inside}"
            padding_length = 0 if is_entry else frame_length
        else:
            if any(body[frame_length - 32 :]) or frame_length > recording.mtu_length:
                fault = f"frame_length={frame_length}: longer than the mtu, or not padded with zeros"
            if recording.is_checksummed and _checksum(recording, body) != checksum & 0xFFFF_FFFF:
                fault = "checksum does not match"
            if bool(flags & 0x80) == is_inside or flags & 0x3F:
                fault = f"flags={flags:#x} inside_message={is_inside}"
            if not flags & 0x40 and frame_length != recording.mtu_length:
                fault = f"fragment of frame_length={frame_length} is not the last and not a whole mtu"
            is_inside, run_length = not flags & 0x40, run_length + aligned
            if not is_inside:
                if padding_length and run_length <= padding_length:
                    fault = f"message of {run_length} bytes came after {padding_length} bytes of padding"
                if run_length > term_length // 8 + 32 * (1 + run_length // recording.mtu_length) + 32:
                    fault = f"message of {run_length} bytes in a term of {term_length}"
                run_length = padding_length = 0
        if fault:
            faults.append(f"recording {recording.recording_id} position={position}: {fault}")
        payload = body[: frame_length - 32] if frame_type else b""
        recording.frames.append(Frame(position, frame_length, flags, frame_type, payload))
        offset += aligned


def _check_no_strays(archive: Path, recordings: list[RecordingView], faults: list[str], *, stopped: bool) -> None:
    known = {recording.recording_id for recording in recordings}
    for name in _names(archive):
        if name in _ARCHIVE_FILES:
            continue
        found = _SEGMENT_NAME.fullmatch(name) or (None if stopped else _WORKING_NAME.fullmatch(name))
        if found is None or int(found[1]) not in known:
            faults.append(f"archive: a file that nobody needs: {name}")

"""The rules of the small state files: node-state.dat, cluster-mark.dat, archive-mark.dat. Nothing of ours imported.

Aeron's tools insist on both mark files: ArchiveTool opens archive-mark.dat for describe and dump, ClusterTool and a
consensus module that starts open cluster-mark.dat.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

NODE_STATE_LENGTH: Final = 1 << 20
MARK_FILE_LENGTH: Final = 1_056_768
MARK_HEADER_LENGTH: Final = 8192
MARK_ERROR_LENGTH: Final = 1 << 20
CLUSTER_MARK_VERSION: Final = 0x300
ARCHIVE_MARK_VERSION: Final = 0x3_0100

_CLUSTER_MARK: Final = struct.Struct("<iiqqqqiiiiiiiii")
_ARCHIVE_MARK: Final = struct.Struct("<i4xqqqiiiiiiq")
_MARK_BLOCK_END: Final = 8 + 128


def check_node_state(data: bytes, faults: list[str], *, by_aeron: bool = False) -> int:
    """Two records as Aeron has them; after them its zeros, or what Trimaran adds. Gives the candidate term.

    `by_aeron` says that Aeron wrote last: what Trimaran added is then of a record before.
    """
    version, candidate, footer = struct.unpack_from("<i", data), data[8:48], data[48:64]
    head = struct.unpack_from("<HHHHi", candidate)
    (candidate_term_id,) = struct.unpack_from("<q", candidate, 16)
    if (
        version != (0x300,)
        or head != (24, 301, 112, 10, 40)
        or struct.unpack_from("<HHHHi", footer) != (0, 304, 112, 10, 16)
    ):
        faults.append(f"node-state.dat: version={version} candidate term header={head}")
    written = data[64:88] if by_aeron else data[24:48]
    checked = data[:24] + written + data[48:64] + written + b"TRIMARAN"
    trailer = checked[64:] + struct.pack("<I", zlib.crc32(checked))
    if len(data) != NODE_STATE_LENGTH or data[64:100] not in (bytes(36), trailer) or any(data[100:]):
        faults.append(f"node-state.dat: length={len(data)} or bytes after the footer")
    return int(candidate_term_id)


def check_cluster_mark(data: bytes, faults: list[str], *, stopped: bool) -> None:
    """The header of a consensus module, six texts, and room for an error log."""
    what = "cluster-mark.dat"
    if not _check_mark_shape(data, what, faults, schema_id=110, text_count=6):
        return
    version, component, activity, start, pid, _, *streams, _, service_id, header, errors, _ = _CLUSTER_MARK.unpack_from(
        data, 8
    )
    if (version, component, service_id) != (CLUSTER_MARK_VERSION, 1, -1) or pid <= 0 or start <= 0:
        faults.append(f"{what}: version={version:#x} component_type={component} service_id={service_id} pid={pid}")
    if (header, errors) != (MARK_HEADER_LENGTH, MARK_ERROR_LENGTH) or any(stream <= 0 for stream in streams):
        faults.append(f"{what}: header_length={header} error_buffer_length={errors} streams={streams}")
    if stopped and activity != -1:
        faults.append(f"{what}: activity_timestamp={activity} after an orderly end")


def check_archive_mark(data: bytes, faults: list[str], *, stopped: bool) -> None:
    """The header of an archive, four texts, and room for an error log."""
    what = "archive-mark.dat"
    if not _check_mark_shape(data, what, faults, schema_id=100, text_count=4):
        return
    version, activity, start, pid, *streams, header, errors, _, _ = _ARCHIVE_MARK.unpack_from(data, 8)
    if version != ARCHIVE_MARK_VERSION or pid <= 0 or start <= 0:
        faults.append(f"{what}: version={version:#x} pid={pid} start_timestamp={start}")
    if (header, errors) != (MARK_HEADER_LENGTH, MARK_ERROR_LENGTH) or len(streams) != 3:
        faults.append(f"{what}: header_length={header} error_buffer_length={errors}")
    if stopped and activity != -1:
        faults.append(f"{what}: activity_timestamp={activity} after an orderly end")


def _check_mark_shape(data: bytes, what: str, faults: list[str], *, schema_id: int, text_count: int) -> bool:
    """Length, message header, and texts that end before the error log. False if there is nothing more to look at."""
    head = struct.unpack_from("<HHHH", data) if len(data) >= MARK_HEADER_LENGTH else None
    if head != (128, 200, schema_id, 2) or len(data) != MARK_FILE_LENGTH:
        faults.append(f"{what}: length={len(data)} header={head}")
        return False
    offset = _MARK_BLOCK_END
    for _ in range(text_count):
        if offset + 4 > MARK_HEADER_LENGTH:
            break
        offset += 4 + int.from_bytes(data[offset : offset + 4], "little")
    if offset > MARK_HEADER_LENGTH:
        faults.append(f"{what}: texts end at {offset}, after the header")
    return True

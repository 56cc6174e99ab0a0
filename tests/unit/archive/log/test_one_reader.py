"""Only one place opens a member's directory: what `archive.log` offers is what everybody else calls.

The import contracts name who may have a disk and read names of segments; this looks at the calls that need neither.
"""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.modules import parsed

PRODUCT: Final = ("archive", "benchmarks", "client", "cluster", "examples", "notebooks", "service_api")
ROOMS: Final = ("archive/files/", "archive/format/", "archive/log/", "archive/reading/", "archive/store/")
"""They are what `archive.log` is made of, the readers that it is given to, and the archive that runs."""

CALLS: Final = frozenset(
    {
        "FrameReader",
        "FrameScanner",
        "RangeReader",
        "SegmentFiles",
        "parse_catalog",
        "parse_segment_file_name",
        "read_catalog",
        "read_slots",
        "segment_file_name",
    }
)
"""They open a recording, or name a file of it."""

OTHERS: Final = {
    "archive/cold/file_system.py": "shows cold segments under the names of files",
    "archive/stored/index.py": "names the files of a backup that segments in a store are",
    "archive/spark/source/batch_reader.py": "scans a range of a recording that the plan found",
    "archive/spark/source/pruning.py": "scans the head of a segment",
    "archive/spark/streaming/stream.py": "scans a range of a log that the plan found",
    "archive/spark/streaming/stream_cut.py": "scans for the end of a batch",
    "archive/tool/selection.py": "recordings by id, in any archive",
    "cluster/operating/backup/shipping.py": "names the segments that it puts into a store",
    "cluster/operating/backup/shortening.py": "names the segments that a shorter backup is without",
    "cluster/cli/recovery_plan.py": "judges the end of the log as a start does",
    "cluster/core/log/recording_log.py": "the recording log of a running member",
    "cluster/operating/export_aeron/foreign_entries.py": "blocks of whole frames to rewrite",
    "cluster/directories/copying.py": "copies segments, file by file, and checks the copy",
    "cluster/directories/survey.py": "judges the end of a recording as a start does",
    "cluster/runtime/repair/comparing.py": "names the segment in which logs differ",
    "cluster/runtime/repair/mender.py": "names the segment that it mends",
    "cluster/testing/simulation/rules/backup_rules.py": "the referee reads what a backup and its index have",
    "cluster/testing/simulation/kept_log.py": "the referee reads disks as a power loss would leave them",
    "cluster/time_travel/frame_check.py": "blocks of whole frames for a replay",
    "cluster/time_travel/member_log.py": "blocks of whole frames for a replay",
    "service_api/wire/log/recording_log.py": "the format itself: finds slots without a checksum",
}
"""Who else makes such calls, and why."""

NAMES_OF_FILES: Final = {
    "archive/cold/cache.py",
    "archive/stored/index.py",
    "archive/files/catalog.py",
    "archive/format/layout.py",
    "archive/format/segment_names.py",
    "archive/format/stored_names.py",
    "cluster/testing/simulation/faults/damage.py",
    "cluster/testing/simulation/member_disks.py",
}
"""Who writes the suffix of segments by itself: the format, cold storage for its objects, and the simulator, which
damages files and watches them."""


def calls_in(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            is_method = isinstance(node.func, ast.Attribute)
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names |= {name} & (CALLS - {"read_catalog"} if is_method else CALLS)  # `MemberDirectory` has one, too
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".rec"):
            names.add("*.rec")
    return names


def test_nobody_else_opens_recordings_of_a_directory() -> None:
    found = {name: calls_in(tree) for name, tree in parsed(*PRODUCT)}
    callers = {name: calls - {"*.rec"} for name, calls in found.items() if not name.startswith(ROOMS)}

    assert len(found) > 400
    assert sorted(name for name, calls in callers.items() if calls) == sorted(OTHERS)
    named = {name for name, calls in found.items() if "*.rec" in calls and name.startswith(("archive/", "cluster/"))}
    assert named == NAMES_OF_FILES


@pytest.mark.parametrize(
    "source",
    [
        "FrameReader(directory, descriptor)",
        "path = directory / descriptor.segment_file_name(0)",
        "sorted(directory.glob('0-*.rec'))",
        "open(f'{recording}-{base}.rec')",
        "read_catalog(disk, directory)",
        "reader.SegmentFiles(disk, directory, descriptor, sync_level=0)",
    ],
)
def test_the_look_sees_a_reader_of_its_own(source: str) -> None:
    assert calls_in(ast.parse(source))

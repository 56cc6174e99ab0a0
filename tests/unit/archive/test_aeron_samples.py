"""Archives made by a real Aeron Cluster: catalog, frames and messages as its own decoders saw them.

Source: samples set A; what it holds is described in its README.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.archive.streams import extract_sample, load_truth
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import AsyncFrameReader, FrameReader, MessageReader
from trimaran.archive.format.catalog import CATALOG_FILE_NAME, CatalogContent, encode_entry
from trimaran.archive.reading.message_view import MessageViewer
from trimaran.archive.reading.verify import verify_recording
from trimaran.cluster.cli.archive import VOCABULARY

NODES = [
    ("single-node", 0), ("checksummed", 0), ("torn", 0), ("archive-only", 0),
    ("three-node-failover", 0), ("three-node-failover", 1), ("three-node-failover", 2),
]  # fmt: skip


@cache
def truth_of(scenario: str, node: int) -> dict[str, Any]:
    return load_truth(f"{scenario}-node{node}")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("samples")
    for scenario in {scenario for scenario, _ in NODES}:
        extract_sample(scenario, target)
    return target


@pytest.fixture(params=NODES, ids=lambda param: f"{param[0]}-node{param[1]}")
def sample(samples: Path, request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    scenario, node = request.param
    return samples / scenario / f"node{node}" / "archive", truth_of(scenario, node)


def load(directory: Path) -> CatalogContent:
    return read_catalog(OsFileSystem(), directory)


def test_catalog_reads_as_in_the_truth(sample: tuple[Path, dict[str, Any]]) -> None:
    directory, truth = sample

    content = load(directory)

    assert content.header.next_recording_id == truth["catalog"]["next_recording_id"]
    assert content.header.version == truth["catalog"]["version"]
    assert content.file_length == truth["catalog"]["file_length"]
    for entry, expected in zip(content.entries, truth["catalog"]["entries"], strict=True):
        assert entry.problem is None
        assert entry.descriptor is not None
        descriptor, fields = entry.descriptor, expected["descriptor"]
        assert (entry.offset, entry.length - 32) == (expected["offset"], expected["header"]["length"])
        assert entry.checksum == expected["header"]["checksum"]
        assert descriptor.state.name == expected["header"]["state"]
        assert {
            "controlSessionId": descriptor.control_session_id,
            "correlationId": descriptor.correlation_id,
            "recordingId": descriptor.recording_id,
            "startTimestamp": descriptor.start_timestamp_ms,
            "stopTimestamp": -1 if descriptor.stop_timestamp_ms is None else descriptor.stop_timestamp_ms,
            "startPosition": descriptor.start_position,
            "stopPosition": -1 if descriptor.stop_position is None else descriptor.stop_position,
            "initialTermId": descriptor.initial_term_id,
            "segmentFileLength": descriptor.segment_file_length,
            "termBufferLength": descriptor.term_buffer_length,
            "mtuLength": descriptor.mtu_length,
            "sessionId": descriptor.session_id,
            "streamId": descriptor.stream_id,
            "strippedChannel": descriptor.stripped_channel,
            "originalChannel": descriptor.original_channel,
            "sourceIdentity": descriptor.source_identity,
        } == fields


def test_catalog_entries_are_written_as_aeron_writes_them(sample: tuple[Path, dict[str, Any]]) -> None:
    directory, _ = sample
    raw = (directory / CATALOG_FILE_NAME).read_bytes()

    for entry in load(directory).entries:
        assert entry.descriptor is not None
        assert encode_entry(entry.descriptor) == raw[entry.offset : entry.offset + entry.length]


def test_every_frame_is_as_in_the_truth(sample: tuple[Path, dict[str, Any]]) -> None:
    directory, truth = sample

    for entry, expected in zip(load(directory).entries, truth["recordings"], strict=True):
        assert entry.descriptor is not None
        reader = FrameReader(directory, entry.descriptor)
        frames = [frame._asdict() for frame in reader]
        for frame in frames:
            del frame["payload"]
        assert frames == expected["frames"]
        assert reader.stop_reason is not None
        assert (reader.position, reader.stop_reason.value) == (
            expected["scan_ended"]["position"],
            expected["scan_ended"]["reason"],
        )


def test_every_message_is_as_in_the_truth(sample: tuple[Path, dict[str, Any]]) -> None:
    directory, truth = sample

    for entry, expected in zip(load(directory).entries, truth["recordings"], strict=True):
        assert entry.descriptor is not None
        reader = MessageReader(FrameReader(directory, entry.descriptor))
        messages = list(reader)
        viewer = MessageViewer.of(VOCABULARY, entry.descriptor.stream_id, messages, is_whole=True)
        assert [viewer.view(message) for message in messages] == expected["messages"]
        assert reader.incomplete_message_count == expected["scan_ended"]["incomplete_messages"]


async def test_async_reader_yields_the_same_frames(samples: Path) -> None:
    directory = samples / "checksummed" / "node0" / "archive"
    descriptor = load(directory).entries[0].descriptor
    assert descriptor is not None

    reader = AsyncFrameReader(FrameReader(directory, descriptor))

    assert [frame async for frame in reader] == list(FrameReader(directory, descriptor))


def test_verify_finds_nothing_wrong(sample: tuple[Path, dict[str, Any]]) -> None:
    directory, truth = sample

    verdicts = [verify_recording(OsFileSystem(), directory, entry) for entry in load(directory).entries]

    assert [verdict.problems for verdict in verdicts] == [[] for _ in verdicts]
    assert [v.frame_count for v in verdicts] == [len(r["frames"]) for r in truth["recordings"]]
    assert {v.checksummed for v in verdicts} == {truth["scenario"] == "checksummed"}

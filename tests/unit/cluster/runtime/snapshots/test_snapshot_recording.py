"""Snapshots as recordings: what is written is read back; what Aeron wrote is read, and written the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.archive.streams import extract_sample, launch
from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.core.solo import Solo
from trimaran.archive import Archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import FrameReader, MessageReader
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.snapshots.snapshot import ModuleSnapshot, decode_module_snapshot
from trimaran.cluster.messages import snapshot as wire
from trimaran.cluster.runtime.snapshots.snapshot_recording import SnapshotReader, SnapshotWriter
from trimaran.service_api import ClusterError, LocalProtocolError
from trimaran.service_api.types import SERVICE_SNAPSHOT_STREAM_ID, CorrelationId, TermId
from trimaran.service_api.wire.log.messages import CLUSTER_ACTION_FLAGS_DEFAULT, ClusterAction, ClusterActionRequest
from trimaran.service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker
from trimaran.service_api.wire.message import ClusterMessage, Message, decode_message
from trimaran.service_api.wire.sbe import MESSAGE_HEADER


@pytest.fixture
async def archive() -> AsyncIterator[Archive]:
    made = await launch(MemoryFileSystem())
    yield made
    await made.aclose()


async def write(archive: Archive, messages: list[bytes]) -> int:
    writer = await SnapshotWriter.start(
        archive, stream_id=SERVICE_SNAPSHOT_STREAM_ID, alias="service-0-snapshot", monotonic_ns=lambda: 0
    )
    for message in messages:
        await writer.offer(message)
    return await writer.finish()


def read(archive: Archive, recording_id: int) -> SnapshotReader:
    return SnapshotReader(archive.frames(recording_id), ClusterError)


async def test_what_is_written_is_read_back_across_terms_and_in_fragments(archive: Archive) -> None:
    limit = archive.config.term_length_bytes // 8
    messages = [bytes([number % 251]) * (number * 37 % (limit + 1)) for number in range(200)]

    recording_id = await write(archive, messages)

    assert archive.recorded_position(recording_id) > archive.config.term_length_bytes
    assert [message async for message in read(archive, recording_id)] == messages


def of_a_later_version(template_id: int) -> bytes:
    return MESSAGE_HEADER.pack(8, template_id, ClusterMessage.SCHEMA_ID, 99) + bytes(8)


async def test_message_of_a_later_version_is_passed_over_where_it_says_so(archive: Archive) -> None:
    """The framework's messages only: what a service wrote is its own."""
    timer = wire.Timer(correlation_id=CorrelationId(1), deadline=2).encode()
    recording_id = await write(archive, [of_a_later_version(8150), timer, of_a_later_version(8199)])
    reader = read(archive, recording_id)

    assert await reader.decode(wire.Timer.decode) == wire.Timer.decode(timer)
    assert await reader.decode(wire.Timer.decode) is None
    assert len([message async for message in read(archive, recording_id)]) == 3


async def test_message_of_a_later_version_that_holds_state_is_refused_with_what_to_do(archive: Archive) -> None:
    recording_id = await write(archive, [of_a_later_version(8149)])

    with pytest.raises(ClusterError, match=r"template_id=8149 .*later version"):
        await read(archive, recording_id).decode(wire.Timer.decode)


async def test_message_that_no_recording_takes_is_refused(archive: Archive) -> None:
    with pytest.raises(LocalProtocolError, match="message too long"):
        await write(archive, [bytes(archive.config.term_length_bytes // 8 + 1)])


async def test_writer_lets_others_have_their_turn(archive: Archive) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        counting = group.create_task(count())
        await write(archive, [bytes(1_000)] * 10_000)
        counting.cancel()

    assert turns > 10


async def test_purged_snapshot_leaves_no_file_and_no_descriptor_that_can_be_read(archive: Archive) -> None:
    recording_id = await write(archive, [b"x"])

    await archive.purge_recording(recording_id)
    await archive.purge_recording(recording_id)

    with pytest.raises(ClusterError, match="not usable"):
        read(archive, recording_id)
    assert await write(archive, [b"y"]) == recording_id + 1


# --- what a real cluster wrote


def load_sample(directory: Path, scenario: str, node: int) -> list[tuple[RecordingLog, list[Message], list[bytes]]]:
    """Every complete set of a sample's snapshots: its recording log, the module's messages, all payloads before END."""
    extract_sample(scenario, directory)
    member = directory / scenario / f"node{node}"
    log = RecordingLog.parse((member / "cluster" / "recording.log").read_bytes())
    content = read_catalog(OsFileSystem(), member / "archive")
    found = []
    while snapshots := log.latest_snapshots(1):
        messages: list[Message] = []
        payloads: list[bytes] = []
        for entry, registry in zip(
            snapshots, (wire.CONSENSUS_MODULE_SNAPSHOT_MESSAGES, wire.SERVICE_SNAPSHOT_MESSAGES), strict=True
        ):
            descriptor = content.entries[entry.recording_id].descriptor
            assert descriptor is not None
            for message in MessageReader(FrameReader(member / "archive", descriptor)):
                payloads.append(message.payload)
                messages.append(decode_message(message.payload, registry=registry))
                if isinstance(messages[-1], SnapshotMarker) and messages[-1].mark is SnapshotMark.END:
                    break
        found.append((RecordingLog.parse((member / "cluster" / "recording.log").read_bytes()), messages, payloads))
        log.invalidate_latest_snapshot()
    return found


@pytest.mark.parametrize("node", [0, 1, 2])
def test_snapshots_of_aeron_are_taken_over_and_written_again_byte_for_byte(tmp_path: Path, node: int) -> None:
    """Source: samples set A."""
    sets = load_sample(tmp_path, "three-node-failover", node)
    assert len(sets) == 2
    for _, messages, payloads in sets:
        module_length = 1 + next(index for index, message in enumerate(messages) if _is_end(message))
        clients = [message for message in messages if isinstance(message, wire.ClientSessionSnapshot)]
        snapshot = decode_module_snapshot(messages[:module_length])

        effect = take_again(snapshot, clients, messages[0])

        written = [*effect.module_messages, *effect.service_messages]
        for message, expected, payload in zip(written, messages, payloads, strict=True):
            if isinstance(expected, wire.ConsensusModuleSnapshot | wire.PendingMessageTracker):
                # The capacity is a hint of our own: Aeron gives the size of its ring.
                assert isinstance(message, wire.ConsensusModuleSnapshot | wire.PendingMessageTracker)
                capacity = {"pending_message_capacity": expected.pending_message_capacity}
                assert message.model_copy(update=capacity) == expected
            else:
                assert message == expected
                assert message.encode() == payload


def _is_end(message: Message) -> bool:
    return isinstance(message, SnapshotMarker) and message.mark is SnapshotMark.END


def take_again(snapshot: ModuleSnapshot, clients: list[wire.ClientSessionSnapshot], marker: Message) -> fx.TakeSnapshot:
    """Have a module that took a snapshot over take it again."""
    assert isinstance(marker, SnapshotMarker)
    position, term_id = snapshot.log_position, snapshot.leadership_term_id
    solo = Solo(terms=[(term_id, 0, position)], is_started=False, app_version=marker.app_version)
    solo.ctx.roster.history.start_from(roster(0, 3, is_formed=False).current)  # Aeron's do not say who the members are
    solo.module.snapshots.restore(snapshot, clients, timestamp=0)
    solo.module.actions.start()
    solo.module.on_replay_cluster_action(
        ClusterActionRequest(
            leadership_term_id=TermId(term_id),
            log_position=position,
            timestamp=0,
            action=ClusterAction.SNAPSHOT,
            flags=CLUSTER_ACTION_FLAGS_DEFAULT,
        ),
        position,
    )
    effect, _ = solo.take()
    assert isinstance(effect, fx.TakeSnapshot)
    return effect

"""Asking another member for its snapshot: what is answered, to whom, and what is made of answers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.facts import has_facts
from tests.unit.archive.streams import launch
from tests.unit.cluster.core.node import config
from tests.unit.cluster.core.rosters import configured
from tests.unit.cluster.core.seeded import add_seed
from tests.unit.cluster.runtime.fake_agent import FakeAgent
from tests.unit.cluster.runtime.fake_gate import let_in, quiet_gate
from trimaran.archive import Archive
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.cluster.messages.shipping import SHIPPING_ANSWERS, LeadershipTerms, SnapshotOffer, SnapshotQuery
from trimaran.cluster.runtime.files.copy_notes import CopyNotes
from trimaran.cluster.runtime.files.log_copies_file import LogCopiesFile
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.snapshots.offers import Offers
from trimaran.cluster.runtime.snapshots.retention import Retention
from trimaran.cluster.runtime.snapshots.snapshot_shipping import SnapshotFetcher
from trimaran.cluster.settings.config import parse_members
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import NULL_POSITION, SNAPSHOT_SHIPPING_STREAM_ID, MemberId, RecordingId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.message import Message, decode_message

ONE = MemberId(1)


def context(
    recording_log: RecordingLog, peer: ConfiguredMember | None = None, *, append_position: int = 0
) -> ConsensusContext:
    return ConsensusContext(
        config=config(0, 3),
        random=lambda: 0.5,
        recording_log=recording_log,
        log_recording_id=RecordingId(0),
        log_buffer=LogBuffer(position=append_position, retained_bytes=1 << 16),
        roster=Roster(
            MemberId(0),
            Configuration(
                members=(configured(0), peer or configured(1), configured(2)), high_member_id=2, log_position=1
            ),
        ),
        append_position=append_position,
    )


def log_with_snapshot(*, term_count: int = 3) -> RecordingLog:
    """Terms of 32 bytes each, and one snapshot in the last: recordings 5 and 6."""
    log = RecordingLog()
    for term_id in range(term_count):
        log.append_term(
            recording_id=0, leadership_term_id=term_id, term_base_log_position=32 * term_id, timestamp=term_id
        )
    for service_id in (0, -1):
        log.append_snapshot(
            RecordedSnapshot(
                recording_id=5 - service_id,
                leadership_term_id=term_count - 1,
                term_base_log_position=32 * (term_count - 1),
                log_position=32 * term_count,
                timestamp=99,
                service_id=service_id,
            )
        )
    return log


@asynccontextmanager
async def office(
    recording_log: RecordingLog, *, log_start_position: int = 0
) -> AsyncIterator[tuple[Offers, Retention]]:
    archive = await launch(MemoryFileSystem())
    recording = await archive.start_recording(
        stream_id=100,
        session_id=1,
        start_position=log_start_position,
        channel="c",
        source_identity="s",
        preallocate=False,
    )
    retention = Retention(
        archive, 0, member_positions=dict, monotonic_ns=lambda: 0, on_failed=lambda error: pytest.fail(str(error))
    )
    yield Offers(context(recording_log), archive, retention), retention
    await recording.stop()
    await archive.aclose()


async def ask(asked: Offers, request: bytes) -> list[Message]:
    asker = let_in(quiet_gate(), Purpose.CONSENSUS)
    return [
        decode_message(document, registry=SHIPPING_ANSWERS) async for document in asked.answer_member(request, asker)
    ]


def query(log_position: int, member_id: int = ONE) -> bytes:
    return SnapshotQuery(follower_member_id=MemberId(member_id), log_position=log_position).encode()


@pytest.mark.parametrize("member_id", [0, 3, -1, (1 << 31) - 1])
async def test_nothing_is_kept_for_an_id_that_no_other_member_has(member_id: int) -> None:
    """Each id held a lease: a stranger that asked in one name after the other kept every snapshot for ever."""
    async with office(log_with_snapshot()) as (asked, retention):
        assert await ask(asked, query(0, member_id)) == []

    assert not retention._is_read(5)


async def test_the_newest_snapshot_is_offered_with_all_terms_up_to_it_and_kept() -> None:
    async with office(log_with_snapshot(term_count=600)) as (asked, retention):
        offer, *rest = await ask(asked, query(0))

    assert isinstance(offer, SnapshotOffer)
    assert [(snapshot.recording_id, snapshot.service_id) for snapshot in offer.snapshots] == [(6, -1), (5, 0)]
    assert offer.term_count == 600
    terms = [term for message in rest for term in cast(LeadershipTerms, message).terms]
    assert [term.leadership_term_id for term in terms] == [*range(600)]
    assert [term.term_base_log_position for term in terms][:3] == [0, 32, 64]
    assert retention._is_read(5)
    assert retention._is_read(6)


@pytest.mark.parametrize("log", [RecordingLog(), log_with_snapshot()])
async def test_who_has_nothing_of_use_says_so_and_keeps_nothing(log: RecordingLog) -> None:
    async with office(log) as (asked, retention):
        [offer] = await ask(asked, query(96))

        assert isinstance(offer, SnapshotOffer)
        assert (offer.snapshots, offer.term_count) == ((), 0)
        assert has_facts(offer.detail, "snapshot", "log_position=96")
        assert not retention._is_read(5)


async def test_who_has_nothing_is_offered_what_the_log_begins_with() -> None:
    """The newest one would do, too; but the log from 0 on, which comes after it, needs this one."""
    async with office(add_seed(log_with_snapshot())) as (asked, _):
        [offer] = await ask(asked, query(NULL_POSITION))

    assert isinstance(offer, SnapshotOffer)
    assert [(snapshot.recording_id, snapshot.log_position) for snapshot in offer.snapshots] == [(9, 0), (8, 0)]
    assert offer.term_count == 0


async def test_who_has_nothing_is_not_offered_a_later_snapshot_and_the_log_from_0_on() -> None:
    async with office(add_seed(log_with_snapshot(), is_valid=False)) as (asked, _):
        [offer] = await ask(asked, query(NULL_POSITION))

    assert isinstance(offer, SnapshotOffer)
    assert offer.snapshots == ()
    assert has_facts(offer.detail, "begins", "snapshot", "not valid")


async def test_where_the_log_was_purged_who_has_nothing_is_offered_the_newest_snapshot() -> None:
    async with office(add_seed(log_with_snapshot()), log_start_position=32) as (asked, _):
        offer, *_ = await ask(asked, query(NULL_POSITION))

    assert isinstance(offer, SnapshotOffer)
    assert [snapshot.recording_id for snapshot in offer.snapshots] == [6, 5]


@pytest.mark.parametrize("request_", [b"", b"garbage", SnapshotOffer.__name__.encode() * 40])
async def test_a_question_that_is_none_is_answered_with_nothing(request_: bytes) -> None:
    async with office(log_with_snapshot()) as (asked, _):
        assert await ask(asked, request_) == []


# --- the member that asks


def offer_of(log_position: int, *, term_count: int = 0, detail: str = "") -> bytes:
    return SnapshotOffer(
        member_id=ONE,
        log_recording_id=RecordingId(0),
        log_start_position=0,
        term_count=term_count,
        detail=detail,
    ).encode()


class Fetching:
    """A fetcher, and what came of it."""

    def __init__(self, fetcher: SnapshotFetcher, archive: Archive, agent: FakeAgent) -> None:
        self.fetcher, self.archive, self._agent = fetcher, archive, agent

    @property
    def events(self) -> list[object]:
        return [*self._agent.posted, *self._agent.failures, *self._agent.ends]


@asynccontextmanager
async def fetching(documents: list[bytes] | None) -> AsyncIterator[Fetching]:
    """A member whose leader answers so; None: no process listens there."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for document in documents or ():
            writer.write(encode_frame(document, stream_id=SNAPSHOT_SHIPPING_STREAM_ID))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if documents is None:
        server.close()
        await server.wait_closed()
    [peer] = parse_members(f"1=127.0.0.1:{port - 1}")  # consensus is one port up
    disk, agent = MemoryFileSystem(), FakeAgent()
    archive = await launch(disk)
    file = RecordingLogFile.open(archive.directory, file_system=disk)
    async with ActivityScope() as tasks:
        ctx = context(file.recording_log, peer.configured())
        copies = LogCopiesFile(archive.directory / "log-copies", ctx.log_copies, disk)
        fetcher = SnapshotFetcher(
            ctx,
            archive,
            file,
            network=SOCKETS,
            copy_notes=CopyNotes(ctx, copies, network=SOCKETS, tasks=tasks, on_failed=agent.terminate),
            agent=agent,
            monotonic_ns=lambda: 0,
            tasks=tasks,
        )
        yield Fetching(fetcher, archive, agent)
    server.close()
    await archive.aclose()


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        (None, "no process"),
        ([], "without an answer"),
        ([b"garbage"], "message"),
        ([offer_of(0, detail="none here")], "member 1 "),
        ([offer_of(0, term_count=2)], "ends early"),
        ([LeadershipTerms().encode()], "unexpected answer"),
        ([offer_of(0, term_count=2), offer_of(0)], "unexpected answer"),
    ],
)
async def test_an_answer_that_is_none_is_tried_for_again(documents: list[bytes] | None, reason: str) -> None:
    async with fetching(documents) as under_test:
        under_test.fetcher.fetch(fx.FetchSnapshot(ONE))
        await ended(under_test.fetcher)

        [event] = under_test.events
        assert isinstance(event, ev.SnapshotFetchFailed)
        assert reason in event.reason
        assert under_test.archive.descriptors() == []


async def test_what_was_stopped_is_not_installed() -> None:
    async with fetching([]) as under_test:
        under_test.fetcher.fetch(fx.FetchSnapshot(ONE))
        under_test.fetcher.stop()
        await ended(under_test.fetcher)
        await under_test.fetcher.install(fx.InstallSnapshot(96))

        assert under_test.events == []


async def ended(fetcher: SnapshotFetcher) -> None:
    assert fetcher._task is not None
    await asyncio.wait([fetcher._task])

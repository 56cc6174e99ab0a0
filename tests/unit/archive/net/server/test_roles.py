"""What each role may have from an archive that tells callers apart: by requests, and by the ways around requests.

A stream that is being published, and the events of recordings, are joined without a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tls import Issuer
from tests.unit.archive.streams import launch
from tests.unit.cluster.runtime.fake_gate import AuditLines
from tests.waiting import patient, within
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.format import messages
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.frame_stream import open_live
from trimaran.archive.net.publication import Publication
from trimaran.archive.net.server.archive_server import ArchiveServer
from trimaran.archive.net.server.policy import ReadOnly
from trimaran.archive.net.server.served_archive import ServedArchive
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.authorisation import AllowAll, AuthorisationService, DenyAll
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.tls import TlsSettings, TlsStack

TIMEOUT_S: Final = 10.0


@dataclass(slots=True)
class Served:
    """An archive, with what an operator publishes into it and replays from it."""

    issuer: Issuer
    server: ArchiveServer
    published: messages.RecordingDescriptorRow
    publication: Publication

    def connect(self, role: CallerRole) -> Any:  # Any: a context with a client
        return connect(self.issuer, self.server, role)


def connect(issuer: Issuer, server: ArchiveServer, role: CallerRole) -> Any:  # Any: as above
    """Come as somebody of a role; a stranger has no certificate."""
    shown = issuer.of(role, "2" if role is CallerRole.MEMBER else f"some-{role}")
    if role is CallerRole.STRANGER:
        shown = TlsSettings(authorities=shown.authorities)
    return ArchiveClient.connect(str(server.endpoint), tls=shown, cluster_id=f"{issuer.cluster_id:016x}")


@asynccontextmanager
async def served(directory: Path, authorisation: AuthorisationService) -> AsyncIterator[Served]:
    issuer = Issuer.create(directory / "certs")
    archive = await launch()
    # What is published and replayed begins before the rules hold, and ends after they did.
    network = TlsStack(issuer.member(1))
    state = ServedArchive(archive, authorisation=AllowAll(), network=network, cluster_id=lambda: network.cluster_id)
    server = ArchiveServer(state)
    await server.start(Endpoint("127.0.0.1", 0))
    try:
        async with (
            connect(issuer, server, CallerRole.OPERATOR) as operator,
            operator.record("theirs", stream_id=7) as publication,
        ):
            await publication.offer(b"secret")
            await publication.recorded()
            (published,) = await operator.list_recordings()
            async with operator.replay(published.recording_id, follow=True) as reader:
                replayed = aiter(reader)  # kept: it ends the replay when it is forgotten
                assert (await anext(replayed)).payload == b"secret"
                server.state.authorisation = authorisation
                try:
                    yield Served(issuer, server, published, publication)
                finally:
                    server.state.authorisation = AllowAll()
    finally:
        await server.aclose()
        await archive.aclose()


async def list_them(served: Served, archive: ArchiveClient) -> None:
    await archive.list_recordings()


async def replay(served: Served, archive: ArchiveClient) -> None:
    async for _ in archive.replay(served.published.recording_id):
        pass


async def join_what_is_published(served: Served, archive: ArchiveClient) -> None:
    await open_live(await archive._dial(), served.published, timeout_s=patient(TIMEOUT_S))


async def follow_events(served: Served, archive: ArchiveClient) -> None:
    async def publish() -> None:
        """An event comes to whoever has joined: until then there is more of them."""
        while True:
            await served.publication.offer(b"more")
            await served.publication.recorded()

    publishing = asyncio.create_task(publish())
    try:
        async with within(TIMEOUT_S):
            async for _ in archive.recording_events():
                return
    finally:
        publishing.cancel()


async def record(served: Served, archive: ArchiveClient) -> None:
    async with archive.record("mine", stream_id=8):
        pass


async def stop_what_another_replays(served: Served, archive: ArchiveClient) -> None:
    replay_session_id = next(iter(served.server.state.replays))
    await archive.stop_replay(replay_session_id)


READING: Final = (list_them, replay, join_what_is_published, follow_events)
WRITING: Final = (record, stop_what_another_replays)
READERS: Final = {CallerRole.OBSERVER, CallerRole.OPERATOR, CallerRole.MEMBER}
WRITERS: Final = READERS - {CallerRole.OBSERVER}
JUDGED: Final = {CallerRole.CONTACT, CallerRole.OUTSIDER}
"""Which no certificate names: an archive that is served by itself knows no members."""


async def is_given(served: Served, role: CallerRole, ask: Callable[[Served, ArchiveClient], Awaitable[None]]) -> bool:
    async with served.connect(role) as archive:
        try:
            await ask(served, archive)
        except ArchiveError as error:
            if error.code not in (ArchiveErrorCode.UNAUTHORISED_ACTION, ArchiveErrorCode.UNKNOWN_REPLAY):
                raise
            return False
    return True


@pytest.mark.parametrize("ask", [*READING, *WRITING], ids=lambda ask: str(ask.__name__))
@pytest.mark.parametrize("role", [role for role in CallerRole if role not in JUDGED])
async def test_roles_have_what_the_table_of_permissions_says(
    role: CallerRole, ask: Callable[[Served, ArchiveClient], Awaitable[None]], tmp_path: Path
) -> None:
    async with served(tmp_path, AllowAll()) as archive:
        assert await is_given(archive, role, ask) is (role in (READERS if ask in READING else WRITERS))


@pytest.mark.parametrize("ask", READING, ids=lambda ask: str(ask.__name__))
async def test_what_the_authorisation_does_not_give_nobody_has_by_another_way(
    ask: Callable[[Served, ArchiveClient], Awaitable[None]], tmp_path: Path
) -> None:
    async with served(tmp_path, ReadOnly()) as archive:
        assert await is_given(archive, CallerRole.OPERATOR, ask)
        archive.server.state.authorisation = DenyAll()
        assert not await is_given(archive, CallerRole.OPERATOR, ask)


async def test_what_changes_an_archive_is_in_its_audit_trail_and_so_is_what_was_refused(tmp_path: Path) -> None:
    """Nothing said who had purged a recording. Reading leaves no line, and what is refused often leaves one."""
    lines = AuditLines()
    async with served(tmp_path, AllowAll()) as archive:
        archive.server.state.audit = lines.audit
        async with archive.connect(CallerRole.OPERATOR) as operator:
            await operator.list_recordings()
            await operator.update_channel(archive.published.recording_id, "again")
            with pytest.raises(ArchiveError):
                await operator.purge_recording(archive.published.recording_id)  # it is active
        async with archive.connect(CallerRole.OBSERVER) as observer:
            for _ in range(3):
                with pytest.raises(ArchiveError):
                    await observer.purge_recording(archive.published.recording_id)
        told = lines.told("action", "caller", "request", "recording_id", "channel", "outcome")

    assert told == [
        ("audit.action_begun", "archive writing", "some-operator", "UpdateChannel", 0, "again", None),
        ("audit.action_ended", "archive writing", "some-operator", "UpdateChannel", 0, "again", "done"),
        ("audit.action_begun", "archive writing", "some-operator", "PurgeRecording", 0, None, None),
        ("audit.action_ended", "archive writing", "some-operator", "PurgeRecording", 0, None, "failed"),
        ("audit.action_refused", "archive writing", "some-observer", "PurgeRecording", 0, None, "refused"),
    ]


async def test_credentials_for_another_archive_are_not_in_the_audit_trail(tmp_path: Path) -> None:
    lines = AuditLines()
    async with served(tmp_path, AllowAll()) as archive:
        archive.server.state.audit = lines.audit
        async with archive.connect(CallerRole.OPERATOR) as operator:
            try:
                replication = await operator.replicate("127.0.0.1:1", 0, credentials=b"hidden words")
                await operator.stop_replication(replication.replication_id)
            except ArchiveError:
                pass  # nobody is there to copy from

    assert lines.lines
    assert "hidden" not in str(lines.lines)

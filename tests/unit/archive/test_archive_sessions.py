"""Control sessions of an archive: who may have one, what it may ask and edit, and what ends it."""

from __future__ import annotations

import pytest

from tests.unit.archive.net.server.test_replays import offer_all, payloads_of
from tests.unit.archive.served import HOST, client_of, numbered, served_client, serving
from tests.unit.archive.streams import TERM_LENGTH
from tests.waiting import let_pass, slowness, until
from trimaran.archive import ArchiveError, ArchiveErrorCode
from trimaran.archive.format import messages
from trimaran.archive.net.client import ArchiveClient
from trimaran.archive.net.replication import replicate
from trimaran.service_api.authenticator import SessionProxy
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.errors import ClusterError, ClusterTimeoutError
from trimaran.service_api.types import CorrelationId


class Doorman:
    """Lets in who says `friend`, asks who says `perhaps`, thinks about `slow`, fails over `error`."""

    def __init__(self) -> None:
        self.said: dict[int, bytes] = {}
        self.asked_count = 0

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.said[session_id] = encoded_credentials

    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        said = self.said[proxy.session_id]
        self.asked_count += 1
        if said == b"friend" or (said == b"slow" and self.asked_count >= 3):
            proxy.authenticate(b"the " + said)
        elif said == b"perhaps":
            proxy.challenge(b"who?")
        elif said == b"error":
            raise ValueError("never mind")
        elif said != b"slow":
            proxy.reject()

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        self.said[session_id] = encoded_credentials

    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        if self.said[proxy.session_id] == b"who? me":
            proxy.authenticate(b"the challenged")
        else:
            proxy.reject()


@pytest.mark.parametrize("credentials", [b"friend", b"slow"])
async def test_authenticator_lets_in(credentials: bytes) -> None:
    async with (
        serving(authenticator=Doorman()) as server,
        client_of(server, credentials=credentials) as client,
        client.record("c", stream_id=7) as publication,
    ):
        await publication.offer(b"every connection has shown them")


@pytest.mark.parametrize("credentials", [b"", b"foe", b"error", b"x" * 5000])
async def test_authenticator_turns_away(credentials: bytes) -> None:
    async with serving(authenticator=Doorman()) as server:
        with pytest.raises(ArchiveError) as caught:
            async with client_of(server, credentials=credentials):
                pass

    assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED
    assert ("no credentials=" in str(caught.value)) == (credentials == b"")


async def test_challenge_is_answered() -> None:
    async with serving(authenticator=Doorman()) as server:
        async with client_of(server, credentials=b"perhaps", on_challenge=lambda asked: asked + b" me") as client:
            await client.keep_alive()
        for wrong in (lambda asked: b"not me", None):
            with pytest.raises(ArchiveError) as caught:
                async with client_of(server, credentials=b"perhaps", on_challenge=wrong):
                    pass
            assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED


async def test_a_supplier_shows_credentials_and_answers_the_challenge() -> None:
    class Me:
        def encoded_credentials(self) -> bytes:
            return b"perhaps"

        def on_challenge(self, encoded_challenge: bytes) -> bytes:
            return encoded_challenge + b" me"

    async with serving(authenticator=Doorman()) as server:
        client = await ArchiveClient.connect(str(server.endpoint), credentials=Me())
        await client.keep_alive()
        await client.aclose()
        with pytest.raises(ArchiveError, match=r"without on_challenge=.*PasswordCredentials"):
            await ArchiveClient.connect(str(server.endpoint), credentials=b"perhaps")


async def test_client_that_the_authenticator_does_not_admit_any_more_is_ended() -> None:
    """Also one that only keeps alive, as beside a long replay; an authenticator that fails ends nobody."""

    class Revoking(Doorman):
        gone: bytes | Exception = b""

        def still_admits(self, encoded_principal: bytes, proof_id: str) -> bool:
            if isinstance(self.gone, Exception):
                raise self.gone
            return encoded_principal != self.gone

    doorman = Revoking()
    async with serving(authenticator=doorman) as server, client_of(server, credentials=b"friend") as client:
        doorman.gone = OSError("no list of friends")
        await client.keep_alive()

        doorman.gone = b"the friend"

        with pytest.raises(ArchiveError) as caught:
            await client.keep_alive()
        assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED
        with pytest.raises(ClusterError):
            await client.list_recordings()


async def test_authorisation_sees_the_principal() -> None:
    class FriendsOnly:
        def is_authorised(self, schema_id: int, template_id: int, request_type: int | None, principal: bytes) -> bool:
            return principal == b"the friend" or template_id == messages.ListRecordingsRequest.TEMPLATE_ID

    async with serving(authenticator=Doorman(), authorisation=FriendsOnly()) as server:
        async with client_of(server, credentials=b"friend") as client, client.record("c", stream_id=7):
            pass
        async with client_of(server, credentials=b"perhaps", on_challenge=lambda asked: asked + b" me") as client:
            assert len(await client.list_recordings()) == 1
            with pytest.raises(ArchiveError, match="request=StartPositionRequest") as caught:
                await client.start_position(0)

    assert (caught.value.code, caught.value.recording_id) == (ArchiveErrorCode.UNAUTHORISED_ACTION, 0)


async def test_recordings_are_listed_and_found() -> None:
    async with served_client() as (_, client):
        sessions: list[int] = []
        for number in range(6):
            async with client.record(f"channel-{number % 2}", stream_id=7 + number % 3) as publication:
                await publication.offer(b"x")
            sessions.append(publication.session_id)

        async def ids(**wanted: object) -> list[int]:
            return [found.recording_id for found in await client.list_recordings(**wanted)]  # type: ignore[arg-type]

        assert await ids() == [0, 1, 2, 3, 4, 5]
        assert await ids(from_recording_id=2, limit=3) == [2, 3, 4]
        assert await ids(stream_id=7) == [0, 3]
        assert await ids(stream_id=7, channel_fragment="nel-1") == [3]
        assert await ids(from_recording_id=9) == []
        found = await client.find_last_matching(channel_fragment="channel", stream_id=7, session_id=sessions[3])
        assert found == 3
        assert await client.find_last_matching(channel_fragment="x", stream_id=7, session_id=sessions[3]) is None
        assert (await client.start_position(0), await client.stop_position(0)) == (0, 64)
        assert (await client.recording_position(0), await client.max_recorded_position(0)) == (None, 64)
        assert await client.archive_id() is None


async def test_positions_of_an_active_recording() -> None:
    async with served_client() as (_, client), client.record("c", stream_id=7) as publication:
        await offer_all(publication, [b"x"])

        assert await client.stop_position(0) is None
        assert await client.recording_position(0) == 64
        assert (await client.list_recording(0)).stop_position == -1


async def test_editing_reaches_the_archive_and_its_refusals_the_client() -> None:
    async with served_client() as (_, client):
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(1000))
            with pytest.raises(ArchiveError) as active:
                await client.truncate_recording(0, 0)
        end_position = publication.position
        assert end_position > 3 * TERM_LENGTH

        await client.detach_segments(0, TERM_LENGTH)
        assert await client.start_position(0) == TERM_LENGTH
        assert await client.attach_segments(0) == 1
        assert await client.start_position(0) == 0
        await client.detach_segments(0, TERM_LENGTH)
        assert await client.delete_detached_segments(0) == 1
        assert await client.purge_segments(0, 2 * TERM_LENGTH) == 1
        assert await client.start_position(0) == 2 * TERM_LENGTH
        with pytest.raises(ArchiveError) as behind:
            await payloads_of(client.replay(0, position=0))
        assert await client.truncate_recording(0, 2 * TERM_LENGTH + 256) == 1
        assert await client.stop_position(0) == 2 * TERM_LENGTH + 256
        await client.update_channel(0, "renamed")
        assert (await client.list_recording(0)).original_channel == "renamed"
        assert await client.purge_recording(0) >= 1
        with pytest.raises(ArchiveError) as purged:
            await client.list_recording(0)
        with pytest.raises(ArchiveError):
            await client.migrate_segments(src_recording_id=0, dst_recording_id=1)
        deleted = [m for m in client._signals._messages if isinstance(m, messages.RecordingSignalEvent)]

    assert (active.value.code, active.value.recording_id) == (ArchiveErrorCode.ACTIVE_RECORDING, 0)
    assert (behind.value.code, behind.value.position) == (ArchiveErrorCode.INVALID_POSITION, 0)
    assert (purged.value.code, purged.value.recording_id) == (ArchiveErrorCode.UNKNOWN_RECORDING, 0)
    assert [m.signal for m in deleted] == [messages.RecordingSignal.DELETE] * 3


async def test_session_is_kept_alive_without_being_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one with a stream: a reader may be as slow as it likes."""
    monkeypatch.setattr("trimaran.archive.net.connection.KEEP_ALIVE_INTERVAL_S", 0.05)
    idle_timeout_s = slowness()  # one second of a quiet machine
    async with serving(idle_timeout_s=idle_timeout_s) as server, client_of(server) as client:
        async with client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(2))
            follower = aiter(client.replay(0, follow=True))
            await anext(follower)
            await let_pass(1.2 * idle_timeout_s)
            await client.keep_alive()
            await offer_all(publication, numbered(1, first=2))
        assert [message.payload async for message in follower] == numbered(2, first=1)


async def test_silent_session_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.archive.net.connection.KEEP_ALIVE_INTERVAL_S", 60)
    async with serving(idle_timeout_s=0.1) as server, client_of(server) as silent:
        await until(lambda: silent._session.failure is not None)
        with pytest.raises(ArchiveError, match="connection lost"):
            await silent.keep_alive()


async def test_archive_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the session, and then nothing comes from it any more."""
    monkeypatch.setattr("trimaran.archive.net.connection.KEEP_ALIVE_INTERVAL_S", 0.01)
    monkeypatch.setattr("trimaran.archive.net.server.control_session.ControlSession.respond", _respond_once)
    async with serving() as server, client_of(server, timeout_s=0.2) as client:
        with pytest.raises(ClusterTimeoutError, match=r"request=ArchiveIdRequest timeout_s=0\.2"):
            await client.archive_id()
        await until(lambda: client._session.failure is not None)

        assert "silent for" in str(client._session.failure)


def _respond_once(self, correlation_id: int, relevant_id: int) -> None:  # type: ignore[no-untyped-def]
    if correlation_id == 1:
        self.send(
            messages.ControlResponse(
                control_session_id=self.control_session_id,
                correlation_id=CorrelationId(correlation_id),
                relevant_id=relevant_id,
                code=messages.ControlResponseCode.OK,
            )
        )


async def test_client_that_ends_leaves_nothing_behind() -> None:
    async with serving() as server:
        async with client_of(server) as client, client.record("c", stream_id=7) as publication:
            await offer_all(publication, numbered(3))
            follower = aiter(client.replay(0, follow=True))
            await anext(follower)
        await until(lambda: not server._sessions)

        assert (server.state.replays, server.state.recordings) == ({}, {})
        with pytest.raises(ArchiveError, match=f"endpoint={HOST}:1 "):
            async with client_of(_Elsewhere()):  # type: ignore[arg-type]  # only its endpoint is looked at
                pass


class _Elsewhere:
    endpoint = "127.0.0.1:1"


async def test_an_archive_of_another_cluster_refuses_by_name() -> None:
    """Also in plain text, where no certificate says which cluster is meant."""
    async with serving(cluster_id=lambda: 5) as server:
        with pytest.raises(
            ClusterError, match="another cluster: cluster_id=0000000000000005 expected=0000000000000006"
        ):
            async with client_of(server, cluster_id="0000000000000006"):
                pass
        for known in ("", "0000000000000005"):
            async with client_of(server, cluster_id=known) as archive:
                assert await archive.list_recordings() == []


async def test_a_member_copies_from_no_archive_of_another_cluster() -> None:
    async with serving(cluster_id=lambda: 5) as server:
        recording = await server.state.archive.start_recording(
            stream_id=7, session_id=1, start_position=0, channel="c", source_identity="s"
        )
        with pytest.raises(ClusterError, match="another cluster: cluster_id=0000000000000005"):
            await replicate(
                source=server.endpoint,
                src_recording_id=0,
                recording=recording,
                stop_position=64,
                cluster_id=ClusterId(6),
            )

"""Certificates of open connections that cease to count: what was given for them ends, and nothing else."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.tls import Issuer
from tests.unit.cluster.runtime.fake_gate import AuditLines, FakeTime, let_in
from trimaran.service_api.access.identity import CallerRole
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.access.rights import Rights
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from trimaran.service_api.net.transport import Purpose, take_certificate
from trimaran.service_api.tls import TlsSettings, TlsStack, review
from trimaran.service_api.tls.credentials import TlsCredentials
from trimaran.service_api.tls.settings import FILE_SETTINGS
from trimaran.service_api.tls.watch import TlsWatch
from trimaran.service_api.types import MemberId


def shake_hands(server: TlsSettings, client: TlsSettings) -> ssl.SSLObject:
    """Return the server's end of a connection in memory."""
    now = datetime.now(UTC)
    accepting = TlsCredentials.load(server, now=now).accepting_context(demands_certificate=False)
    dialling = TlsCredentials.load(client, now=now).dialling_context(checks_name=False)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        dialling.wrap_bio(to_client, to_server, server_hostname="localhost"),
        accepting.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1]


class Reviewed:
    """Member 1's stack and gate, the watch of its files, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.time = datetime.now(UTC)
        self.directory = directory
        self.issuer = Issuer.create(directory)
        self.settings = self.issuer.member(1)
        self.stack = TlsStack(self.settings, member_id=MemberId(1), is_watched=True, now=lambda: self.time)
        self.lines = AuditLines()
        self.gate = ConnectionGate(rights=Rights(self.lines.audit), call_later=FakeTime().call_later)
        self.watch = TlsWatch(self.stack, self.gate, info=self._note, error=self._note, now=lambda: self.time)
        self.authorities = Path(self.settings.authorities).read_text()
        self.events: list[str] = []
        self.ended: list[str] = []

    def _note(self, event: str, **fields: str) -> None:
        self.events.append(event)

    def connect(
        self, role: CallerRole, name: str, purpose: Purpose, *, lifetime: timedelta = timedelta(days=20)
    ) -> AcceptedConnection:
        """Let somebody in as the transport does."""
        secured = shake_hands(self.settings, self.issuer.of(role, name, lifetime=lifetime))
        accepted = let_in(self.gate, purpose)
        caller, detail = self.stack.identify(secured.getpeercert())
        accepted.identify(caller, detail, take_certificate(secured))
        accepted.end = self.ended.append
        return accepted

    def replace_authority(self, *, keeps_old: bool = False) -> None:
        """Put another authority's files in the place of member 1's."""
        new, old = Issuer.create(self.directory / f"other-{keeps_old}").member(1), self.authorities
        for name in FILE_SETTINGS:
            text = Path(getattr(new, name)).read_text()
            Path(getattr(self.settings, name)).write_text(text + (old if keeps_old and name == "authorities" else ""))

    async def look(self, *, after: timedelta = timedelta(seconds=1)) -> None:
        self.time += after
        await self.watch.look()


@pytest.fixture
def reviewed(tmp_path: Path) -> Reviewed:
    return Reviewed(tmp_path)


async def test_connection_ends_when_its_certificate_expires(reviewed: Reviewed) -> None:
    client = reviewed.connect(CallerRole.CLIENT, "importer", Purpose.INGRESS, lifetime=timedelta(hours=1))
    operator = reviewed.connect(CallerRole.OPERATOR, "ops", Purpose.CONSENSUS)
    assert client.may(Permission.SESSION)
    assert operator.may(Permission.STATUS)

    await reviewed.look(after=timedelta(minutes=59))
    assert not client.is_over
    await reviewed.look(after=timedelta(minutes=2))

    assert (client.is_over, operator.is_over) == (True, False)
    (reason,) = reviewed.ended
    assert "has expired: not_after=" in reason
    assert reviewed.lines.told("role", "caller", "actions") == [
        ("audit.right_ended", "client", "importer", ["session"])
    ]


async def test_connection_of_nothing_that_was_given_has_no_right_after_it(reviewed: Reviewed) -> None:
    client = reviewed.connect(CallerRole.OBSERVER, "eye", Purpose.ARCHIVE, lifetime=timedelta(hours=1))

    await reviewed.look(after=timedelta(hours=2))

    assert not client.is_over
    assert not client.may(Permission.ARCHIVE_READING)
    assert client.caller.role is CallerRole.OUTSIDER


async def test_connections_end_when_no_authority_has_signed_their_certificates(reviewed: Reviewed) -> None:
    """On every port and of every role. While the old authority is trusted beside the new one, nobody notices."""
    given = [
        (reviewed.connect(CallerRole.CLIENT, "importer", Purpose.INGRESS), Permission.SESSION),
        (reviewed.connect(CallerRole.OBSERVER, "eye", Purpose.ARCHIVE), Permission.ARCHIVE_READING),
        (reviewed.connect(CallerRole.OPERATOR, "ops", Purpose.CONSENSUS), Permission.SHUTDOWN),
    ]
    assert all(accepted.may(permission) for accepted, permission in given)

    reviewed.replace_authority(keeps_old=True)
    await reviewed.look()
    assert reviewed.ended == []
    reviewed.replace_authority()
    await reviewed.look()

    assert [accepted.is_over for accepted, _ in given] == [True] * 3
    assert all("no authority" in reason for reason in reviewed.ended)
    assert reviewed.events == ["tls.changed", "tls.changed"]


async def test_handshake_that_had_begun_before_the_change_is_looked_at_after_it(reviewed: Reviewed) -> None:
    early = reviewed.connect(CallerRole.CLIENT, "importer", Purpose.INGRESS)
    assert early.may(Permission.SESSION)
    settings, issuer = reviewed.settings, reviewed.issuer
    old = shake_hands(settings, issuer.of(CallerRole.CLIENT, "late"))
    reviewed.replace_authority()
    await reviewed.look()
    assert early.is_over

    late = let_in(reviewed.gate, Purpose.INGRESS)
    late.identify(*reviewed.stack.identify(old.getpeercert()), take_certificate(old))
    assert late.may(Permission.SESSION)
    await reviewed.look()

    assert late.is_over


async def test_files_in_the_middle_of_an_edit_end_nobody(reviewed: Reviewed) -> None:
    client = reviewed.connect(CallerRole.CLIENT, "importer", Purpose.INGRESS)
    assert client.may(Permission.SESSION)
    authorities = Path(reviewed.settings.authorities)
    whole = authorities.read_text()

    authorities.write_text(whole[: len(whole) // 2])
    await reviewed.look()
    authorities.write_text("")
    await reviewed.look()

    assert not client.is_over
    assert set(reviewed.events) == {"tls.refused"}


async def test_signatures_are_checked_after_a_change_alone(reviewed: Reviewed, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of each certificate once, however many connections show it."""
    checked = list[int]()
    real = review._find_signed

    def count(chains: set[tuple[bytes, ...]], *rest: object) -> set[tuple[bytes, ...]]:
        checked.append(len(chains))
        return real(chains, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(review, "_find_signed", count)
    for name in ("a", "b"):
        assert reviewed.connect(CallerRole.CLIENT, name, Purpose.INGRESS).may(Permission.SESSION)

    for _ in range(3):
        await reviewed.look()
    assert checked == []
    reviewed.issuer.member(1)
    for _ in range(20):
        await reviewed.look()

    assert checked == [2]


def test_the_chain_of_a_connection_ends_with_its_authority(reviewed: Reviewed) -> None:
    """An authority may have signed another certificate, and that one the caller's."""
    secured = shake_hands(reviewed.settings, reviewed.issuer.of(CallerRole.CLIENT, "importer"))

    shown = take_certificate(secured)

    assert shown is not None
    assert shown.chain == (secured.getpeercert(binary_form=True), reviewed.stack.credentials.authorities[0].encoded)


def test_caller_without_a_certificate_has_none_to_lose(reviewed: Reviewed) -> None:
    secured = shake_hands(reviewed.settings, TlsSettings(authorities=reviewed.settings.authorities))

    assert take_certificate(secured) is None

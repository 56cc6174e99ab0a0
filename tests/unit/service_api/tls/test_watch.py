"""Files of TLS that change while a process runs, and certificates that expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.tls import Issuer
from tests.unit.cluster.runtime.fake_gate import quiet_gate
from trimaran.service_api.tls import TlsSettings, TlsStack
from trimaran.service_api.tls.watch import TlsWatch
from trimaran.service_api.types import MemberId


class Watched:
    """A member's stack, its watch, a clock, and what was logged."""

    def __init__(self, settings: TlsSettings) -> None:
        self.time = datetime.now(UTC)
        self.events: list[tuple[str, str]] = []
        self.stack = TlsStack(settings, member_id=MemberId(1), is_watched=True, now=lambda: self.time)
        self.watch = TlsWatch(self.stack, quiet_gate(), info=self._note, error=self._note, now=lambda: self.time)

    def _note(self, event: str, **fields: str) -> None:
        self.events.append((event, fields.get("reason") or fields["file"]))

    async def look(self, *, after: timedelta = timedelta()) -> list[tuple[str, str]]:
        self.time += after
        self.events.clear()
        await self.watch.look()
        return [*self.events]


async def test_a_new_certificate_is_taken_and_a_broken_one_is_told_once(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path)
    watched = Watched(issuer.member(1))
    assert await watched.look() == []

    issuer.member(1)
    assert await watched.look() == [("tls.changed", str(tmp_path / "member-1.pem"))]

    (tmp_path / "member-1.key").write_text("garbage")
    ((event, reason),) = await watched.look()
    assert event == "tls.refused"
    assert "member-1.key" in reason
    assert "read before" in reason
    assert await watched.look() == []


async def test_a_key_that_was_refused_for_its_mode_is_read_once_that_is_put_right(tmp_path: Path) -> None:
    """The log asks for this chmod, which changes neither length nor time nor inode."""
    issuer = Issuer.create(tmp_path)
    watched = Watched(issuer.member(1))
    issuer.member(1)
    (tmp_path / "member-1.key").chmod(0o644)
    assert [event for event, _ in await watched.look()] == ["tls.refused"]

    (tmp_path / "member-1.key").chmod(0o600)

    assert [event for event, _ in await watched.look()] == ["tls.changed"]


async def test_expiry_is_told_fourteen_days_ahead_again_each_half_day_and_when_it_has_come(tmp_path: Path) -> None:
    issuer = Issuer.create(tmp_path)
    watched = Watched(issuer.member(1))  # for 20 days

    assert await watched.look(after=timedelta(days=5, hours=23)) == []
    ((event, reason),) = await watched.look(after=timedelta(hours=2))
    assert (event, reason.partition(":")[0]) == (
        "tls.certificate_expires",
        "have a new one issued before then, and put it in the place of this file",
    )
    assert await watched.look(after=timedelta(hours=11)) == []
    assert [event for event, _ in await watched.look(after=timedelta(hours=2))] == ["tls.certificate_expires"]
    assert [event for event, _ in await watched.look(after=timedelta(days=14))] == ["tls.certificate_expired"]

    issuer.member(1, lifetime=timedelta(days=50))
    assert [event for event, _ in await watched.look(after=timedelta(days=1))] == ["tls.changed"]

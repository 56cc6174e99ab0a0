"""Rights end with the reason for them: at once for what is asked, and for connections that are open at a review."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.cluster.runtime.fake_gate import AuditLines, FakeTime, let_in
from trimaran.service_api.access.identity import Caller, CallerRole, Proof
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.access.rights import Rights
from trimaran.service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from trimaran.service_api.net.transport import Purpose


class Judged:
    """A gate whose members are judged by a set of names."""

    def __init__(self) -> None:
        self.names = {"1", "2"}
        self.lines = AuditLines()
        self.rights = Rights(self.lines.audit)
        self.rights.decide(CallerRole.MEMBER, self._judge)
        self.gate = ConnectionGate(rights=self.rights, call_later=FakeTime().call_later)
        self.ended: list[str] = []

    def _judge(self, shown: Caller) -> Caller:
        return shown if shown.name in self.names else replace(shown, role=CallerRole.OUTSIDER, reason="it is gone")

    def connect(self, name: str, purpose: Purpose, role: CallerRole = CallerRole.MEMBER) -> AcceptedConnection:
        accepted = let_in(self.gate, purpose)
        accepted.identify(Caller(role, name, Proof.CERTIFICATE))
        accepted.end = self.ended.append
        return accepted


def test_who_is_none_any_more_is_given_nothing_on_a_connection_that_is_open() -> None:
    judged = Judged()
    member = judged.connect("1", Purpose.ARCHIVE)
    assert member.may(Permission.ARCHIVE_READING)

    judged.names.clear()

    assert not any(member.may(each) for each in Permission if each is not Permission.PROBES)
    assert str(member.caller) == "outsider 1 (by certificate): it is gone"


def test_a_review_ends_what_was_given_and_is_not_any_more_with_one_line_for_a_caller() -> None:
    judged = Judged()
    link, archive, idle = (judged.connect("1", each) for each in (Purpose.LOG, Purpose.ARCHIVE, Purpose.ARCHIVE))
    other, client = judged.connect("2", Purpose.LOG), judged.connect("1", Purpose.INGRESS, CallerRole.CLIENT)
    given = ((link, Permission.MEMBER_LINK), (archive, Permission.ARCHIVE_READING), (other, Permission.MEMBER_LINK))
    assert all(connection.may(each) for connection, each in (*given, (client, Permission.SESSION)))

    judged.rights.review(judged.gate.connections())
    assert judged.ended == []
    judged.names.remove("1")
    judged.rights.review(judged.gate.connections())

    assert (link.is_over, archive.is_over, idle.is_over, other.is_over, client.is_over) == (
        True,
        True,
        False,
        False,
        False,
    )
    assert len(judged.ended) == 2
    assert judged.lines.told("actions", "role", "caller", "connection_count") == [
        ("audit.right_ended", ["archive reading", "member link"], "member", "1", 2)
    ]
    assert judged.gate.refused_counts["log", "no_right"] == judged.gate.refused_counts["archive", "no_right"] == 1


def test_a_refusal_gives_nothing_that_could_end() -> None:
    judged = Judged()
    client = judged.connect("1", Purpose.ARCHIVE, CallerRole.CLIENT)

    assert not client.may(Permission.ARCHIVE_READING)

    assert client.lost_permissions == []

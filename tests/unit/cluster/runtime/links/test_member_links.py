"""Consensus links: what is sent, dropped, taken and refused, and when a link counts as up."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.facts import has_facts
from tests.unit.cluster.core.rosters import roster, roster_at
from tests.unit.cluster.runtime.fake_gate import let_in
from tests.unit.cluster.runtime.fake_transport import FakeTransport
from tests.unit.cluster.runtime.links.linked import (
    ASK,
    ME,
    NOWHERE,
    ONE,
    QUESTION_STREAM_ID,
    SETTINGS,
    STATUS,
    TWO,
    Links,
    canvass,
    framed,
    greeting,
    setup,
)
from tests.waiting import until, within
from trimaran.cluster.core.events import FeatureLevelSaid, LeaderSaid
from trimaran.cluster.core.vocabulary.members import KnownLevel
from trimaran.cluster.messages.consensus import (
    AppendPosition,
    CommitPosition,
    StopCatchup,
    Vote,
)
from trimaran.cluster.messages.settings import MembersNotice
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.links import member_links
from trimaran.cluster.runtime.links.document_server import STATUS_LIMIT
from trimaran.cluster.runtime.links.heard_members import PASSED_OVER_LIMIT
from trimaran.service_api.access.identity import STRANGER, Caller, CallerRole, Proof
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.local_socket import CONTROL_SOCKET_NAME
from trimaran.service_api.net.transport import SOCKETS, Purpose
from trimaran.service_api.types import (
    CONSENSUS_STREAM_ID,
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    LOG_STREAM_ID,
    NULL_VALUE,
    STATUS_STREAM_ID,
    CorrelationId,
    MemberId,
    TermId,
)
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.client_end import WRONG_PORT_ID
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.log.messages import TimerEvent
from trimaran.service_api.wire.message import (
    ClusterMessage,
    Message,
    TrimaranMessage,
    decode_message,
    peek_header,
)
from trimaran.service_api.wire.sbe import MESSAGE_HEADER
from trimaran.service_api.wire.session import SessionConnectRequest, SessionEvent
from trimaran.service_api.wire.stream import FrameParser

# --- out


async def test_message_goes_out_on_the_members_link_as_one_frame() -> None:
    mine = Links()
    _, transport = mine.dialled(ONE)
    _, other = mine.dialled(TWO)

    mine.links.send(ONE, canvass(ME))

    (frame,) = FrameParser().feed(transport.take_written())
    assert decode_message(frame.payload) == canvass(ME)
    assert other.take_written() == b""


async def test_message_to_a_member_whose_link_is_down_is_dropped() -> None:
    """Best effort: what matters is repeated."""
    mine = Links()
    outbound, transport = mine.dialled(ONE)
    outbound.connection_lost(None)

    mine.links.send(ONE, canvass(ME))
    mine.links.send(TWO, canvass(ME))

    assert transport.take_written() == b""
    assert mine.changes == [(ONE, True), (ONE, False)]


async def test_message_to_a_member_whose_link_has_just_failed_is_dropped() -> None:
    """The connection is closed before `connection_lost` comes; uvloop raised on the write, and the node ended."""
    mine = Links()
    _, transport = mine.dialled(ONE)
    transport.abort()

    mine.links.send(ONE, canvass(ME))

    assert transport.take_written() == b""


async def test_member_that_does_not_read_gets_no_more_than_the_limit() -> None:
    """Memory is bounded. Source: peers.md C4 class 29."""
    mine = Links()
    _, transport = mine.dialled(ONE)
    transport.waiting_bytes = (1 << 20) + 1

    mine.links.send(ONE, canvass(ME))
    assert transport.take_written() == b""
    transport.waiting_bytes = 0
    mine.links.send(ONE, canvass(ME))

    assert transport.take_written() == framed(canvass(ME))


# --- in


@pytest.mark.parametrize("step", [1, 33, 1000])
async def test_messages_are_taken_in_order_however_they_are_cut(step: int) -> None:
    mine = Links()
    inbound, _ = mine.accepted()
    data = setup(ONE) + b"".join(framed(canvass(ONE, position)) for position in range(0, 320, 32))

    for start in range(0, len(data), step):
        inbound.data_received(data[start : start + step])

    assert mine.messages == [canvass(ONE, position) for position in range(0, 320, 32)]


async def test_member_that_dials_in_does_not_count_as_up() -> None:
    """Up means that it can be told something: the link that this member dialled."""
    mine = Links()

    mine.accepted(setup(ONE))

    assert mine.changes == []


@pytest.mark.parametrize(
    "message",
    [
        canvass(TWO),
        canvass(ME),
        canvass(9),
        CommitPosition(leadership_term_id=TermId(1), log_position=0, leader_member_id=TWO),
        AppendPosition(leadership_term_id=TermId(1), log_position=0, follower_member_id=ME, flags=0),
        Vote(
            candidate_term_id=TermId(1),
            log_leadership_term_id=TermId(0),
            log_position=0,
            candidate_member_id=ME,
            follower_member_id=TWO,
            vote=True,
        ),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_message_that_another_member_should_have_sent_is_refused(message: Message) -> None:
    """One link speaks for one member: nobody votes for another, or counts for one in a quorum."""
    mine = Links()

    _, transport = mine.accepted(setup(ONE) + framed(message))

    assert transport.is_aborted
    assert mine.messages == []


@pytest.mark.parametrize(
    "data",
    [
        setup(ME),
        setup(ONE, stream_id=LOG_STREAM_ID),
        framed(canvass(ONE)),
        bytes(64),
        b"\xff" * 64,
        setup(ONE) + encode_frame(b"", stream_id=CONSENSUS_STREAM_ID),
        setup(ONE) + encode_frame(canvass(ONE).encode()[:20], stream_id=CONSENSUS_STREAM_ID),
        setup(ONE) + greeting(ONE),
        SetupFrame(session_id=ONE, stream_id=CONSENSUS_STREAM_ID, member_id=ONE).encode() + framed(canvass(ONE)),
        SetupFrame(session_id=ONE, stream_id=CONSENSUS_STREAM_ID, member_id=ONE).encode() + greeting(TWO),
        setup(ONE) + framed(TimerEvent(leadership_term_id=TermId(0), correlation_id=CorrelationId(0), timestamp=0)),
    ],
    ids=[
        "myself",
        "stream",
        "no setup",
        "zeros",
        "ones",
        "empty",
        "cut",
        "settings again",
        "no settings",
        "settings of another",
        "a kind the core does not take",
    ],
)
async def test_connection_that_breaks_the_protocol_is_dropped(data: bytes) -> None:
    mine = Links()

    _, transport = mine.accepted(data)

    assert transport.is_aborted
    assert mine.messages == []


def of_a_later_version(template_id: int, *, schema_id: int = TrimaranMessage.SCHEMA_ID) -> bytes:
    """A message that this version does not know."""
    encoded = MESSAGE_HEADER.pack(8, template_id, schema_id, 99) + bytes(8)
    return encode_frame(encoded, stream_id=CONSENSUS_STREAM_ID)


@pytest.mark.parametrize("schema_id", [TrimaranMessage.SCHEMA_ID, ClusterMessage.SCHEMA_ID])
async def test_message_of_a_later_version_is_passed_over_counted_and_told_once(schema_id: int) -> None:
    """A cluster is upgraded a member at a time: what the newer one says does not end the link."""
    mine = Links()

    with capture_logs() as logs:
        unknown = of_a_later_version(9_000, schema_id=schema_id)
        _, transport = mine.accepted(setup(ONE) + unknown + framed(canvass(ONE)) + unknown)

    assert not transport.is_aborted
    assert mine.messages == [canvass(ONE)]
    assert mine.links.passed_over_counts == {ONE: 2}
    told = [each for each in logs if each["event"] == "member_message.passed_over"]
    assert [(each["peer_member_id"], each["schema_id"], each["template_id"]) for each in told] == [
        (ONE, schema_id, 9_000)
    ]


async def test_a_member_that_says_many_kinds_of_unknown_messages_is_told_of_a_few_times() -> None:
    mine = Links()

    with capture_logs() as logs:
        mine.accepted(setup(ONE) + b"".join(of_a_later_version(template_id) for template_id in range(9_000, 9_500)))

    assert mine.links.passed_over_counts == {ONE: 500}
    assert len([each for each in logs if each["event"] == "member_message.passed_over"]) == PASSED_OVER_LIMIT


async def test_message_of_another_schema_still_ends_the_link() -> None:
    mine = Links()

    _, transport = mine.accepted(setup(ONE) + of_a_later_version(1, schema_id=7))

    assert transport.is_aborted


async def test_answer_of_a_later_version_is_passed_over() -> None:
    mine = Links()
    outbound, transport = mine.dialled(ONE)

    outbound.data_received(of_a_later_version(9_000) + greeting(ONE, service_count=2))

    assert not transport.is_aborted
    assert list(mine.links.differences) == [ONE]


async def test_settings_of_a_later_version_are_read_and_what_they_add_is_ignored() -> None:
    mine = Links()
    encoded = SETTINGS.model_copy(update={"member_id": ONE}).encode()
    block_length, *rest = peek_header(encoded)
    longer = MESSAGE_HEADER.pack(block_length + 16, *rest) + encoded[MESSAGE_HEADER.size :] + bytes(16)
    link = SetupFrame(session_id=ONE, stream_id=CONSENSUS_STREAM_ID, member_id=ONE).encode()

    _, transport = mine.accepted(link + encode_frame(longer, stream_id=CONSENSUS_STREAM_ID) + framed(canvass(ONE)))

    assert not transport.is_aborted
    assert mine.messages == [canvass(ONE)]


async def test_message_that_names_no_sender_comes_with_the_member_whose_link_it_is() -> None:
    """Else any member could end another's catch-up, or the whole cluster."""
    mine = Links()
    message = StopCatchup(leadership_term_id=TermId(0), follower_member_id=ME)

    mine.accepted(setup(TWO) + framed(message))

    assert mine.messages == [LeaderSaid(TWO, message)]


# --- whose settings differ

DIFFERENCES = [
    ("member_count", 5, "member_count=3 here, 5 at member 1"),
    ("service_count", 2, "service_count=1 here, 2 at member 1"),
    ("service_queue_limit_bytes", 1 << 20, "service_queue_limit_bytes=67108864 here, 1048576 at member 1"),
    ("term_length_bytes", 1 << 16, "term_length_bytes=67108864 here, 65536 at member 1"),
    ("mtu_length_bytes", 1408, "mtu_length_bytes=65504 here, 1408 at member 1"),
    ("shared_timer_ids", True, "shared_timer_ids=False here, True at member 1"),
    ("aeron_messages_only", True, "aeron_messages_only=False here, True at member 1"),
    ("checksums", False, "checksums=True here, False at member 1"),
    ("checksum_kind", ChecksumKind.CRC32C, "checksum_kind=crc32 here, crc32c at member 1"),
    ("app_version", 2 << 16, "app_version: major=0 here, 2 at member 1"),
    (
        "cluster_id",
        7,
        "another cluster: cluster_id=0000000000000005 here, 0000000000000007 at member 1",
    ),
]


@pytest.mark.parametrize(("setting", "value", "said"), DIFFERENCES)
async def test_connection_whose_settings_differ_is_not_heard(setting: str, value: int, said: str) -> None:
    """Or the services of one cluster would go different ways, and nobody would notice."""
    mine = Links()
    mine.links.announce(ClusterId(5))

    with capture_logs() as logs:
        inbound, transport = mine.accepted(setup(ONE, **{setting: value}) + framed(canvass(ONE)))
        inbound.data_received(framed(canvass(ONE)))
    mine.accepted(setup(TWO) + framed(canvass(TWO)))

    assert mine.messages == [canvass(TWO)]
    assert not transport.is_closed  # it would dial again at once
    warning, *audited = logs
    assert (warning["event"], warning["peer_member_id"], warning["reason"]) == ("consensus_link.not_heard", ONE, said)
    assert [(line["event"], line["action"], line["reason"]) for line in audited] == (
        [("audit.action_refused", "member link", said)] if setting == "cluster_id" else []
    )


@pytest.mark.parametrize(
    ("caller", "role"),
    [
        (STRANGER, "stranger"),
        (Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE), "client"),
        (Caller(CallerRole.MEMBER, "2", Proof.CERTIFICATE), "member"),
    ],
)
async def test_who_speaks_as_a_member_and_is_not_that_one_is_in_the_audit_trail_once(caller: Caller, role: str) -> None:
    """There was a line for each connection, without the role of who came."""
    mine = Links()

    with capture_logs() as logs:
        transports = [mine.accepted(setup(ONE), caller=caller)[1] for _ in range(3)]

    assert all(transport.is_aborted for transport in transports)
    audited = [line for line in logs if line["event"] == "audit.action_refused"]
    names = ("action", "role", "address", "endpoint", "claimed_member_id")
    assert [tuple(line[name] for name in names) for line in audited] == [
        ("member link", role, "127.0.0.1", "consensus", ONE)
    ]


def outsider(member_id: int, *, claims: int | None = None) -> tuple[Links, FakeTransport]:
    """Links that know their members' certificates, and one that a member opens that is none."""
    mine = Links()
    mine.gate.rights.decide(CallerRole.MEMBER, mine.links._roster.judge)
    mine.links.tell_members(mine.links._roster.current)
    heard = roster(0, 8).current.encode_text()
    said = MembersNotice(member_id=MemberId(member_id), log_position=99, cluster_members=heard)
    first = setup(member_id if claims is None else claims)
    data = first + framed(said) + framed(canvass(member_id))
    _, transport = mine.accepted(data, caller=Caller(CallerRole.MEMBER, str(member_id), Proof.CERTIFICATE))
    return mine, transport


async def test_a_member_that_is_none_is_told_so_and_its_link_ends() -> None:
    """One that was removed while it was down could not learn of it otherwise."""
    mine, transport = outsider(7)

    notice = MembersNotice(member_id=ME, log_position=1, cluster_members=mine.links._roster.current.encode_text())
    assert transport.take_written() == framed(notice)
    assert transport.is_closed
    assert mine.messages == []
    assert [(heard.is_trusted, heard.is_rumour, heard.configuration.log_position) for heard in mine.heard] == [
        (False, True, 99)
    ]


async def test_a_member_that_is_none_does_not_speak_as_another() -> None:
    mine, transport = outsider(7, claims=ONE)

    assert transport.is_aborted
    assert (transport.take_written(), mine.messages, mine.heard) == (b"", [], [])


@pytest.mark.parametrize(("setting", "value", "said"), DIFFERENCES)
async def test_member_whose_endpoint_answers_with_other_settings_differs_and_both_values_are_named_once(
    setting: str, value: int, said: str
) -> None:
    mine = Links()
    outbound, _ = mine.dialled(ONE)
    mine.links.announce(ClusterId(5))
    inbound, _ = mine.accepted(setup(ONE))

    with capture_logs() as logs:
        for _ in range(2):
            outbound.data_received(greeting(ONE, **{setting: value}))
    inbound.data_received(framed(canvass(ONE)))

    assert mine.links.differences == {ONE: said}
    assert mine.messages == []
    assert mine.changes == [(ONE, True), (ONE, False)]
    (error,) = logs
    assert (error["event"], error["peer_member_id"]) == ("member.settings_differed", ONE)
    assert error["reason"].startswith(said)


async def test_a_member_that_this_one_does_not_know_is_told_who_the_members_are_and_not_heard() -> None:
    """It may have been removed, or be newer than this member's log."""
    mine = Links()
    members = mine.links._roster.current
    mine.links.tell_members(members)

    inbound, transport = mine.accepted(setup(9))
    inbound.data_received(framed(canvass(9)))

    assert not transport.is_aborted
    notice = MembersNotice(member_id=ME, log_position=1, cluster_members=members.encode_text())
    assert framed(notice) in transport.written
    assert mine.messages == []


async def test_so_many_unknown_members_are_linked_and_no_more() -> None:
    mine = Links()

    transports = [mine.accepted(setup(each))[1] for each in range(10, 30)]

    assert [transport.is_aborted for transport in transports] == [False] * 16 + [True] * 4
    assert len(mine.links._inbound._links_of) == 16


async def test_a_stranger_who_claims_a_members_id_does_not_make_that_member_differ() -> None:
    """Its setup frame says member 1, its settings are wrong: member 1 stays heard, up and healthy."""
    mine = Links()
    outbound, _ = mine.dialled(ONE)
    outbound.data_received(greeting(ONE))
    member, _ = mine.accepted(setup(ONE))

    mine.accepted(setup(ONE, service_count=2))
    mine.accepted(setup(ONE, cluster_id=99))
    member.data_received(framed(canvass(ONE)))

    assert mine.links.differences == {}
    assert mine.changes == [(ONE, True)]
    assert mine.messages == [canvass(ONE)]
    assert mine.links.announced_cluster_ids == {ONE: 0}


async def test_member_is_heard_again_once_its_endpoint_answers_with_equal_settings() -> None:
    mine = Links()
    outbound, _ = mine.dialled(ONE)
    outbound.data_received(greeting(ONE, service_count=2))
    outbound.connection_lost(None)
    forgotten = dict(mine.links.differences)
    again, _ = mine.dialled(ONE)
    again.data_received(greeting(ONE))
    mine.accepted(setup(ONE) + framed(canvass(ONE)))

    assert forgotten == {}
    assert mine.changes == [(ONE, True), (ONE, False), (ONE, True)]
    assert mine.messages == [canvass(ONE)]


async def test_member_that_was_dialled_answers_with_its_own_settings_and_again_when_it_knows_its_cluster() -> None:
    mine = Links()
    _, transport = mine.accepted(setup(ONE))
    _, silent = mine.accepted(setup(TWO)[:64])
    answered = transport.take_written()

    mine.links.announce(ClusterId(5))

    assert answered == greeting(ME)
    assert transport.take_written() == greeting(ME, cluster_id=5)
    assert silent.take_written() == b""
    _, later = mine.accepted(setup(TWO))
    assert later.take_written() == greeting(ME, cluster_id=5)


async def test_each_member_is_told_how_the_log_begins_as_it_is_when_it_connects() -> None:
    """A log that was empty a moment ago begins with nothing now: a member with a seeded log must not follow it."""
    mine = Links()

    _, before = mine.accepted(setup(ONE, is_log_seeded=True))
    mine.begins = False
    _, after = mine.accepted(setup(TWO, is_log_seeded=True) + greeting(TWO))

    assert before.take_written() == greeting(ME)
    assert after.take_written() == greeting(ME, is_log_seeded=False)
    assert (mine.seeded, mine.messages) == ([ONE], [])


async def test_what_an_endpoint_announces_is_news_and_an_answer_that_is_none_ends_the_connection() -> None:
    mine, news = Links(), []
    mine.links.on_announced = lambda: news.append(dict(mine.links.announced_cluster_ids))
    outbound, transport = mine.dialled(ONE)

    for cluster_id in (0, 0, 5):
        outbound.data_received(greeting(ONE, cluster_id=cluster_id))
    fine = transport.is_aborted
    outbound.data_received(greeting(TWO))

    assert news == [{ONE: 0}, {ONE: 5}]
    assert (fine, transport.is_aborted) == (False, True)


async def test_what_a_members_services_can_is_told_as_its_endpoint_answers_it() -> None:
    """A stranger who dials in may claim anything. A member whose settings differ is not heard."""
    mine = Links()
    mine.accepted(setup(ONE, feature_level=7))
    outbound, _ = mine.dialled(ONE)
    other, _ = mine.dialled(TWO)

    outbound.data_received(greeting(ONE, feature_level=2, limiting_service="service 1, Bank"))
    other.data_received(greeting(TWO, feature_level=3, service_count=2))

    assert mine.said == [FeatureLevelSaid(ONE, KnownLevel(2, "service 1, Bank"))]


async def test_a_member_of_an_older_version_can_feature_level_0() -> None:
    mine = Links()
    outbound, _ = mine.dialled(ONE)
    encoded = SETTINGS.model_copy(update={"member_id": ONE, "feature_level": 9}).encode()
    block_length, template_id, schema_id, _ = peek_header(encoded)
    shorter = MESSAGE_HEADER.pack(block_length - 8, template_id, schema_id, 0) + encoded[MESSAGE_HEADER.size : -8]

    outbound.data_received(encode_frame(shorter, stream_id=CONSENSUS_STREAM_ID))

    assert mine.said == [FeatureLevelSaid(ONE, KnownLevel(0))]


async def test_minor_versions_of_the_service_may_differ() -> None:
    """So that a cluster can be given a new one member by member."""
    mine = Links()

    mine.accepted(setup(ONE, app_version=(1 << 8) + 7) + framed(canvass(ONE)))

    assert mine.messages == [canvass(ONE)]


# --- who asks how this member is


@pytest.mark.parametrize("caller", [None, Caller(CallerRole.CLIENT, "app", Proof.CERTIFICATE)])
async def test_a_client_is_told_where_the_ingress_is_and_its_connection_ends(caller: Caller | None) -> None:
    mine = Links()
    request = SessionConnectRequest(
        correlation_id=CorrelationId(1), response_stream_id=EGRESS_STREAM_ID, response_channel=""
    )
    sent = setup(NULL_VALUE, stream_id=INGRESS_STREAM_ID) + encode_frame(request.encode(), stream_id=INGRESS_STREAM_ID)

    _, transport = mine.accepted(sent, caller=caller)

    (frame,) = FrameParser().feed(transport.take_written())
    event = SessionEvent.decode(frame.payload)
    assert (frame.stream_id, event.correlation_id) == (EGRESS_STREAM_ID, WRONG_PORT_ID)
    assert has_facts(
        event.detail, "consensus port", "member 0", roster_at(ME, {ONE: NOWHERE, TWO: NOWHERE}).own_ingress
    )
    assert (transport.is_closed, transport.is_aborted) == (True, False)
    assert mine.messages == []


@pytest.mark.parametrize("step", [1, 33, 64])
async def test_whoever_asks_gets_one_document_and_the_end(step: int) -> None:
    mine = Links()
    inbound, transport = mine.accepted()

    for start in range(0, len(ASK), step):
        inbound.data_received(ASK[start : start + step])

    assert transport.take_written() == encode_frame(STATUS, stream_id=STATUS_STREAM_ID)
    assert transport.is_closed
    assert not transport.is_aborted


async def test_whoever_asks_more_is_not_heard() -> None:
    """A status connection is no member's: nothing that comes on it reaches the consensus module."""
    mine = Links()

    inbound, transport = mine.accepted(ASK + ASK + setup(ONE) + framed(canvass(ONE)))
    inbound.data_received(setup(ONE) + framed(canvass(ONE)))

    assert transport.take_written() == encode_frame(STATUS, stream_id=STATUS_STREAM_ID)
    assert mine.messages == []


async def test_member_that_asks_on_its_consensus_link_is_refused() -> None:
    mine = Links()

    _, transport = mine.accepted(setup(ONE) + encode_frame(ASK, stream_id=STATUS_STREAM_ID))

    assert transport.is_aborted
    assert transport.take_written() == greeting(ME)  # and no status


async def test_too_many_that_ask_at_once_are_refused_until_one_is_done() -> None:
    """Answers that nobody reads hold memory: their number is bounded. Source: peers.md C4 class 29."""
    mine = Links()
    waiting = [mine.accepted(ASK) for _ in range(STATUS_LIMIT)]

    _, refused = mine.accepted(ASK)
    waiting[0][0].connection_lost(None)
    waiting[0][0].connection_lost(None)
    _, answered = mine.accepted(ASK)
    _, again_refused = mine.accepted(ASK)

    assert all(transport.take_written() for _, transport in waiting)
    assert (refused.is_aborted, refused.take_written()) == (True, b"")
    assert (answered.is_aborted, bool(answered.take_written())) == (False, True)
    assert again_refused.is_aborted


async def test_member_still_gets_through_while_many_ask() -> None:
    mine = Links()
    for _ in range(2 * STATUS_LIMIT):
        mine.accepted(ASK)

    mine.accepted(setup(ONE) + framed(canvass(ONE)))

    assert mine.messages == [canvass(ONE)]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no setup frame within 0.01 s: received_bytes=0"),
        (setup(ONE)[:40], "no setup frame within 0.01 s: received_bytes=40"),
        (ASK, "status was not read within 0.01 s"),
        (
            setup(-1, stream_id=QUESTION_STREAM_ID),
            "no request within 0.01 s: <DocumentRequest stream_id=1000 is_asked=False is_answered=False>",
        ),
        (setup(ONE)[:70], "no settings of a member within 0.01 s: received_bytes=6"),
        (
            SetupFrame(session_id=-1, stream_id=STATUS_STREAM_ID, cluster_id=6).encode(),
            "no setup frame within 0.01 s: received_bytes=0",
        ),
    ],
    ids=["silent", "half a setup frame", "does not read", "does not ask", "half its settings", "another cluster"],
)
async def test_stranger_that_stalls_is_dropped_and_the_log_says_why(
    data: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.links.inbound_connection._STRANGER_TIMEOUT_S", 0.01)
    mine = Links()
    mine.links.announce(ClusterId(5))

    with capture_logs() as logs:
        _, transport = mine.accepted(data)
        await until(lambda: transport.is_aborted)

    assert [line["reason"] for line in logs if line["event"] == "consensus_link.refused"] == [reason]


async def test_a_member_that_is_none_and_does_not_read_who_the_members_are_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.links.inbound_connection._STRANGER_TIMEOUT_S", 0.01)

    with capture_logs() as logs:
        _, transport = outsider(7)
        await until(lambda: transport.is_aborted)

    reasons = [line["reason"] for line in logs if line["event"] == "consensus_link.refused"]
    assert reasons == ["who the members are was not read within 0.01 s"]


@pytest.mark.parametrize("data", [ASK, setup(-1, stream_id=QUESTION_STREAM_ID), setup(ONE)])
async def test_what_comes_at_once_with_a_frame_that_cannot_be_is_not_taken(data: bytes) -> None:
    """A stream that has lost its framing is not to be believed."""
    mine = Links()

    with capture_logs() as logs:
        dialler, transport = mine.accepted(data + bytes(32))

    assert (transport.is_aborted, transport.take_written()) == (True, b"")
    assert [(line["event"], line["peer_member_id"]) for line in logs] == [("consensus_link.refused", None)]
    dialler.connection_lost(None)
    assert mine.gate.count(Purpose.CONSENSUS) == 0


@pytest.mark.parametrize(
    ("data", "member_id", "is_admitted"),
    [
        (b"", None, False),
        (ASK, None, False),
        (setup(-1, stream_id=QUESTION_STREAM_ID), None, False),
        (setup(ONE)[:64], ONE, False),
        (setup(ONE), ONE, True),
        (setup(ONE, service_count=2), ONE, True),
    ],
    ids=["silent", "status", "question", "no settings", "member", "not heard"],
)
async def test_the_gate_counts_and_ends_a_connection_whatever_is_spoken_on_it(
    data: bytes, member_id: int | None, is_admitted: bool
) -> None:
    mine = Links()
    dialler, transport = mine.accepted(data)

    assert (dialler.accepted.is_admitted, mine.gate.count(Purpose.CONSENSUS)) == (is_admitted, 1)
    with capture_logs() as logs:
        dialler.accepted.refuse("no_right", "why")
    dialler.connection_lost(None)

    assert transport.is_aborted
    ended = [line for line in logs if line["event"] == "consensus_link.refused"]
    assert [(line["peer_member_id"], line["reason"]) for line in ended] == [(member_id, "why")]
    assert (len(mine.links._inbound), mine.links._inbound._links_of, mine.gate.count(Purpose.CONSENSUS)) == (0, {}, 0)


async def test_the_gate_may_end_a_connection_before_it_is_made() -> None:
    mine = Links()
    accepted, transport = let_in(mine.gate, Purpose.CONSENSUS), FakeTransport()
    greeting = mine.links._accept(accepted)

    accepted.refuse("evicted", "why")
    greeting.connection_made(transport)
    aborted = transport.is_aborted
    greeting.connection_lost(None)

    assert (aborted, len(mine.links._inbound), mine.gate.count(Purpose.CONSENSUS)) == (True, 0, 0)


async def test_the_oldest_of_too_many_links_of_one_member_goes() -> None:
    mine = Links()

    links = [mine.accepted(setup(ONE)) for _ in range(5)]
    links[0][0].connection_lost(None)
    links[2][0].connection_lost(None)
    later = [mine.accepted(setup(ONE)) for _ in range(2)]

    assert [transport.is_aborted for _, transport in links + later] == [True, True] + [False] * 5
    assert mine.gate.refused_counts == {("consensus", "superseded"): 2}


async def test_all_connections_end_with_the_links() -> None:
    mine = Links()
    transports = [mine.accepted(data)[1] for data in (b"", ASK, setup(-1, stream_id=QUESTION_STREAM_ID), setup(ONE))]

    mine.links.close()

    assert all(transport.is_closed and not transport.is_aborted for transport in transports)


async def test_member_that_has_said_who_it_is_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.links.inbound_connection._STRANGER_TIMEOUT_S", 0.01)
    mine = Links()

    _, stranger = mine.accepted()
    _, member = mine.accepted(setup(ONE))
    await until(lambda: stranger.is_aborted)

    assert not member.is_closed


async def test_status_is_answered_on_a_real_socket_and_the_asking_leaves_nothing_behind() -> None:
    mine = Links()
    async with ActivityScope() as tasks:
        await mine.links.start(SOCKETS, Endpoint("127.0.0.1", 0), tasks, gate=ConnectionGate())
        for _ in range(2 * STATUS_LIMIT):
            reader, writer = await SOCKETS.dial_streams(Purpose.DOCUMENTS, mine.links._listeners[0].endpoint)
            writer.write(ASK)
            async with within(20):
                answer = await reader.read()
            writer.close()
            await writer.wait_closed()

            assert answer == encode_frame(STATUS, stream_id=STATUS_STREAM_ID)
        await until(lambda: not len(mine.links._inbound) and not mine.asked.status_count)
        mine.links.close()


# --- both, on real sockets


async def test_link_comes_back_when_the_member_does_and_both_are_news() -> None:
    """A closed link is news. One that loses everything is given up, or it would stay silent after a partition.

    Source: DESIGN §4.
    """
    mine, theirs = Links(), Links({ME: NOWHERE}, member_id=ONE)
    async with ActivityScope() as tasks:
        await theirs.links.start(SOCKETS, Endpoint("127.0.0.1", 0), tasks, gate=ConnectionGate())
        endpoint = theirs.links._listeners[0].endpoint
        mine.links._roster = roster_at(0, {ONE: endpoint})
        await mine.links.start(SOCKETS, Endpoint("127.0.0.1", 0), tasks, gate=ConnectionGate())
        await until(lambda: mine.changes == [(ONE, True)])

        theirs.links.close()
        await until(lambda: mine.changes == [(ONE, True), (ONE, False)])
        option = socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT
        again = Links({ME: NOWHERE}, member_id=ONE)
        await again.links.start(SOCKETS, endpoint, tasks, gate=ConnectionGate())
        await until(lambda: mine.changes == [(ONE, True), (ONE, False), (ONE, True)])
        assert 0 < mine.links._outbound[ONE].get_extra_info("socket").getsockopt(*option) < 10_000
        mine.links.send(ONE, canvass(ME))
        await until(lambda: again.messages)

        assert again.messages == [canvass(ME)]
        mine.links.close()
        again.links.close()


async def test_a_control_socket_that_was_closed_is_not_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks after it ends only with the member's other tasks, which may take seconds on a slow machine."""
    monkeypatch.setattr(member_links, "_LOOK_INTERVAL_S", 0.001)
    mine, endpoint = Links(), Endpoint("127.0.0.1", 1)
    async with ActivityScope() as tasks:
        await mine.links.start_locally(SOCKETS, tmp_path, endpoint, tasks, gate=mine.gate)
        assert (tmp_path / CONTROL_SOCKET_NAME).exists()

        mine.links.close()
        await until(lambda: not tasks._tasks)

    assert not (tmp_path / CONTROL_SOCKET_NAME).exists()


async def test_a_connection_that_is_lost_before_it_is_made_leaves_nothing() -> None:
    """Found by `trimaran sim --seeds 22`."""
    mine = Links()
    protocol = mine.links._accept(let_in(mine.gate, Purpose.CONSENSUS))

    protocol.connection_lost(None)

    assert len(mine.links._inbound) == 0

"""Asking members for the commit position: the leader first, and nothing believed that is no answer."""

from __future__ import annotations

import socket
import time

import pytest

from tests.unit.archive.spark.status_server import StatusServer
from tests.unit.cluster.cli.answers import member_status
from tests.waiting import patient
from trimaran.archive.log.commit_proof import CommitClaim
from trimaran.archive.spark.streaming.stream_status import CommitAsker, ask_member
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.service_api.documents.document import DocumentVersionError, Refusal
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import REFUSAL_STREAM_ID, STATUS_STREAM_ID
from trimaran.service_api.wire.frame import encode_frame

STATUS = member_status(0, state="LEADER", append=8192, commit=4096).model_dump_json().encode()


def closed_port() -> Endpoint:
    """An endpoint where no process listens."""
    return Endpoint("127.0.0.1", find_base_ports(1)[0])


def document(text: bytes) -> bytes:
    return encode_frame(text, stream_id=STATUS_STREAM_ID)


def test_leader_is_asked_alone_once_it_is_known() -> None:
    with StatusServer(role="FOLLOWER", commit_position=64) as follower, StatusServer(commit_position=96) as leader:
        asker = CommitAsker([follower.endpoint, leader.endpoint])

        answers = [asker.ask() for _ in range(3)]

        assert answers == [[CommitClaim(0, 96)]] * 3
        assert (follower.asked_count, leader.asked_count) == (1, 3)


def test_another_leader_is_found_when_the_first_one_is_gone() -> None:
    with StatusServer(role="FOLLOWER", commit_position=64) as other:
        with StatusServer(commit_position=96) as leader:
            asker = CommitAsker([leader.endpoint, other.endpoint])
            assert asker.ask() == [CommitClaim(0, 96)]

        assert asker.ask() == [CommitClaim(0, 96)]  # the follower is behind what is known
        other.role, other.leadership_term_id, other.commit_position = "LEADER", 1, 128
        assert asker.ask() == [CommitClaim(0, 96), CommitClaim(1, 128)]


def test_claims_of_the_newest_terms_are_remembered() -> None:
    with StatusServer() as leader:
        asker = CommitAsker([leader.endpoint])
        for term_id in range(70):
            leader.leadership_term_id, leader.commit_position = term_id, term_id * 32
            claims = asker.ask()

    assert claims == [CommitClaim(term_id, term_id * 32) for term_id in range(6, 70)]


def test_members_that_do_not_answer_this_caller_are_an_error_that_says_what_to_do() -> None:
    refusal = Refusal(refused="status needs the role observer", advice="use TLS").model_dump_json().encode()
    refused = encode_frame(refusal, stream_id=REFUSAL_STREAM_ID)

    with StatusServer(answer=refused) as member, StatusServer(commit_position=96) as leader:
        with pytest.raises(ConfigurationError, match=r"observer.*TLS"):
            CommitAsker([member.endpoint]).ask()
        assert CommitAsker([member.endpoint, leader.endpoint]).ask() == [CommitClaim(0, 96)]


def test_nobody_to_answer_is_no_error() -> None:
    assert CommitAsker([]).ask() == []
    assert CommitAsker([closed_port()]).ask() == []


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 100,
        document(b"{"),
        document(b"[1, 2]"),
        document(b"\xff\xfe"),
        document(b'{"leadership_term_id": 1, "commit_position": 64}'),
        document(STATUS.replace(b'"commit_position":4096', b'"commit_position":-64')),
        document(STATUS.replace(b'"commit_position":4096', b'"commit_position":"64"')),
        encode_frame(STATUS, stream_id=7),
        document(STATUS)[:40],
    ],
)
def test_what_is_no_answer_is_not_believed(answer: bytes) -> None:
    with StatusServer(answer=answer) as server:
        assert ask_member(server.endpoint, 5.0) is None
        assert server.asked_count == 1


def test_member_that_is_silent_takes_no_longer_than_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        before_s = time.monotonic()

        answer = ask_member(Endpoint(*silent.getsockname()), 0.2)

        assert answer is None
        assert 0.2 <= time.monotonic() - before_s < patient(5.0)


def test_member_that_was_never_in_a_term_claims_nothing() -> None:
    with StatusServer(leadership_term_id=None, commit_position=64, role="FOLLOWER") as member:
        assert CommitAsker([member.endpoint]).ask() == []


def test_answer_of_a_newer_member_is_read() -> None:
    with StatusServer(leadership_term_id=3, commit_position=4096) as newer:
        newer.more = {"added_later": {"x": 1}}

        assert CommitAsker([newer.endpoint]).ask() == [CommitClaim(3, 4096)]


def test_answer_in_a_version_that_is_not_read_is_an_error_only_where_nobody_else_answers() -> None:
    with StatusServer(commit_position=64) as newer, StatusServer(commit_position=32, role="FOLLOWER") as other:
        newer.more = {"schema_version": 2}
        asker = CommitAsker([newer.endpoint, other.endpoint])
        alone = CommitAsker([newer.endpoint, closed_port()])

        assert asker.ask() == [CommitClaim(0, 32)]
        with pytest.raises(DocumentVersionError, match="upgrade"):
            alone.ask()


def test_answer_is_read_as_the_cluster_writes_it() -> None:
    with StatusServer(answer=document(STATUS)) as server:
        assert ask_member(server.endpoint, 5.0) == member_status(0, state="LEADER", append=8192, commit=4096)

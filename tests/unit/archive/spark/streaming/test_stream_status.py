"""Asking members for the commit position: the leader first, and nothing believed that is no answer."""

from __future__ import annotations

import socket
import time

import pytest

from tests.unit.archive.spark.status_server import StatusServer
from trimaran.archive.log.commit_claims import CommitClaim
from trimaran.archive.spark.streaming.stream_status import CommitAsker, ask_member
from trimaran.cluster.documents.status import MemberStatus
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import STATUS_STREAM_ID
from trimaran.service_api.wire.frame import encode_frame


def closed_port() -> Endpoint:
    """An endpoint where nobody listens: it was bound a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Endpoint(*server.getsockname())


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
        document(b'{"leadership_term_id": null, "commit_position": 64}'),
        document(b'{"leadership_term_id": 1, "commit_position": -64}'),
        document(b'{"leadership_term_id": 1, "commit_position": "64"}'),
        encode_frame(b'{"leadership_term_id": 1, "commit_position": 64}', stream_id=7),
        document(b'{"leadership_term_id": 1, "commit_position": 64}')[:40],
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
        assert 0.2 <= time.monotonic() - before_s < 5.0


def test_answer_is_read_as_the_cluster_writes_it() -> None:
    """The fields that are looked at are those of the real document."""
    status = MemberStatus(
        member_id=0,
        version="1",
        pid=1,
        uptime_s=1.0,
        role="LEADER",
        state="LEADER",
        leader_member_id=0,
        leadership_term_id=3,
        append_position=8192,
        commit_position=4096,
        delivered_position=4096,
        session_count=0,
        connection_count=0,
        last_election=None,
    )

    text = status.model_dump_json()
    with StatusServer(answer=document(text.encode())) as server:
        assert ask_member(server.endpoint, 5.0) == (CommitClaim(3, 4096), True)

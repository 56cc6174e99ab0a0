"""Whole elections as text, to be read beside the seed page: who says what to whom, and why states change.

`pytest tests/scenarios --rewrite` writes the files again; the difference is then part of the review.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.dialogue import Dialogue
from tests.unit.cluster.core.node import MS, Node
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.service_api import Role
from trimaran.service_api.types import CorrelationId, MemberId
from trimaran.service_api.wire.session import SessionConnectRequest

HERE = Path(__file__).parent


def election_of_two() -> Dialogue:
    """Source: seed 001, "Example Election"."""
    story = Dialogue("An election of two members of three", {1: 0.25, 2: 0.75})
    for member_id in (1, 2):
        story.prepare(member_id, 4064)

    story.tell(
        "Members 1 and 2 start; member 0 is not running. Both logs end in term 0 at 4064: both are valid candidates.",
        "At a start every member is waited for, up to the startup canvass timeout of ten seconds.",
    )
    story.start(1, 2)
    story.run_until(lambda: story.nodes[MemberId(1)].module.election is None, limit_ns=60_000 * MS)
    story.run(300 * MS)

    assert story.nodes[MemberId(1)].ctx.role is Role.LEADER
    assert story.nodes[MemberId(2)].module.follower is not None
    return story


def fail_over() -> Dialogue:
    """Source: seed 001, "Replication and Catchup Details"; aeron.md §2.5."""
    story = Dialogue("A fail-over with unequal logs", {0: 0.1, 1: 0.5, 2: 0.9})
    zero, one, two = story.nodes.values()
    for node in story.nodes.values():
        story.prepare(node.member_id, 1312)

    story.tell("All three start with the same log. Member 0's nomination deadline comes first.")
    story.start()
    story.run_until(lambda: all(node.module.election is None for node in story.nodes.values()), limit_ns=60_000 * MS)
    connect(story, zero)

    story.tell("Member 2 is cut off from the others, who go on without it.")
    story.isolate(2)
    story.run(50 * MS)
    send(story, zero, 10)

    story.tell(
        "Member 0 is cut off, too: what it appends now reaches nobody. Then it is killed, and members 1 and 2 find one",
        "another again. Member 1 has the newer log of the two.",
    )
    story.isolate(0)
    send(story, zero, 10)
    story.crash(0)
    story.heal()
    story.run_until(lambda: one.module.leader is not None and two.module.election is None, limit_ns=60_000 * MS)
    assert len(zero.disk.log) > len(one.disk.log)
    connect(story, one)
    send(story, one, 40)

    story.tell(
        "Member 0 starts again. Its log goes on in term 1 where nobody's does: that never committed and is cut off.",
        "Then it catches up with term 2.",
    )
    story.start(0)
    story.run_until(lambda: zero.module.follower is not None, limit_ns=60_000 * MS)
    story.run(300 * MS)

    story.expect_equal()
    assert len(zero.disk.log) == len(one.disk.log) == len(two.disk.log)
    return story


def behind_by_two_terms() -> Dialogue:
    """Source: seed 001, "Replication and Catchup Details", with its numbers: 1312, 2848, 4064, 6496."""
    story = Dialogue("Member 0 is behind by two terms", {0: 0.9, 1: 0.1, 2: 0.5})
    zero, one, two = story.nodes.values()
    story.prepare(0, 1312)
    for member_id in (1, 2):
        story.prepare(member_id, 4064, terms=((0, 0), (1, 2848)))
    story.is_told = False
    story.start(1, 2)
    story.run_until(lambda: all(node.module.election is None for node in (one, two)), limit_ns=60_000 * MS)
    connect(story, one)
    send(story, one, 22)
    append(story, one, b"m" * 64)
    assert (one.ctx.leadership_term_id, one.ctx.append_position) == (2, 6496)
    story.run(300 * MS)
    story.is_told = True

    story.tell(
        "Member 0 left in term 0 at A = 1312. Without it, term 0 went on to B = 2848, term 1 to C = 4064, and member 1",
        "leads term 2, which is at D = 6496 by now. D moves on while member 0 comes back.",
        "",
        "It starts, knows nothing of the others, and canvasses: I am in term 0, and my log ends in term 0 at A.",
    )
    story.start(0)
    story.run_until(lambda: is_copying(zero), limit_ns=1_000 * MS)

    story.tell("The rest of term 0, A to B, comes from the leader's archive, straight into the own one.")
    append(story, one, b"m" * 32)
    assert one.ctx.log_buffer.append_position == 6592
    story.run_until(lambda: not is_copying(zero), limit_ns=1_000 * MS)
    assert len(zero.disk.log) == 2848

    story.tell("The second round: the log still ends in term 0, at B, so the leader says the same, and D has moved.")
    story.run_until(lambda: is_copying(zero), limit_ns=1_000 * MS)
    append(story, one, b"")
    assert one.ctx.log_buffer.append_position == 6656
    story.run_until(lambda: not is_copying(zero), limit_ns=1_000 * MS)
    assert len(zero.disk.log) == 4064

    story.tell(
        "The third round: the log ends in term 1 at C. The next term is the leader's own, still open: member 0",
        "processes what it has, asks for a catch-up from C, and joins the live log where the two meet.",
    )
    story.run_until(lambda: len(zero.disk.log) >= 5280, limit_ns=1_000 * MS)
    append(story, one, b"m" * 32)
    append(story, one, b"m" * 64)
    assert one.ctx.log_buffer.append_position == 6880
    story.run_until(lambda: zero.module.follower is not None, limit_ns=60_000 * MS)
    story.run(300 * MS)

    story.expect_equal()
    assert len(zero.disk.log) == 6880
    return story


def hand_over() -> Dialogue:
    """Source: Raft dissertation §3.10."""
    story, zero, _, _ = begin_hand_over("A leader hands its term over")

    story.tell(
        "Member 0 leads, and the client sends five messages. Before anybody else has them, an operator asks for",
        "member 2 as leader. Member 0 reads no client any more, and asks member 2 as soon as that one has everything.",
    )
    assert zero.append_ingress(32, [b"message"] * 5)
    zero.post(ev.TransferRequested(1, 2))
    story.run_until(lambda: story.nodes[MemberId(2)].module.leader is not None, limit_ns=1_000 * MS)
    story.run(50 * MS)

    assert zero.module.follower is not None
    story.expect_equal()
    return story


def hand_over_given_up() -> Dialogue:
    """Source: Raft dissertation §3.10."""
    story, zero, _, two = begin_hand_over("A hand-over that is given up")

    story.tell(
        "An operator asks for member 2 as leader, which stands still just then. After an election timeout member 0",
        "takes input again, in the same term. When member 2 goes on, it finds the request of a while ago, and a log",
        "that has grown since: it does not stand.",
    )
    two.is_paused = True
    zero.post(ev.TransferRequested(1, 2))
    story.run(1_100 * MS)
    append(story, zero, b"m" * 32)
    story.run(20 * MS)
    two.resume()
    story.run(300 * MS)

    assert zero.module.leader is not None
    assert zero.ctx.leadership_term_id == 1
    return story


def begin_hand_over(title: str) -> tuple[Dialogue, Node, Node, Node]:
    """Member 0 leads three members whose logs are equal, and has a client."""
    story = Dialogue(title, {0: 0.1, 1: 0.5, 2: 0.9})
    zero, one, two = story.nodes.values()
    for node in story.nodes.values():
        story.prepare(node.member_id, 1312)
    story.is_told = False
    story.start()
    story.run_until(lambda: all(node.module.election is None for node in story.nodes.values()), limit_ns=60_000 * MS)
    connect(story, zero)
    story.run(300 * MS)
    story.is_told = True
    return story, zero, one, two


def is_copying(node: Node) -> bool:
    """Whether a member copies a term from a leader's archive."""
    election = node.module.election
    return election is not None and election.state is ElectionState.FOLLOWER_LOG_REPLICATION


def append(story: Dialogue, leader: Node, payload: bytes) -> None:
    """Let the client send one message more; its frame has 64 bytes and the payload."""
    assert leader.append_ingress(32, [payload])
    if not story.is_told:
        story.run(20 * MS)


def connect(story: Dialogue, leader: Node) -> None:
    """Let a client open a session."""
    request = SessionConnectRequest(correlation_id=CorrelationId(2), response_stream_id=102, version=256)
    leader.post(ev.ClientConnect(32, request))
    story.run_until(lambda: 32 in leader.bound, limit_ns=1_000 * MS)
    story.run(20 * MS)


def send(story: Dialogue, leader: Node, count: int) -> None:
    """Let the client send messages of 96 bytes each."""
    assert leader.append_ingress(32, [b"message"] * count)
    story.run(20 * MS)


SCENARIOS: dict[str, Callable[[], Dialogue]] = {
    "election-of-two": election_of_two,
    "behind-by-two-terms": behind_by_two_terms,
    "fail-over": fail_over,
    "hand-over": hand_over,
    "hand-over-given-up": hand_over_given_up,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_reads_as_it_is_written(name: str, request: pytest.FixtureRequest) -> None:
    """The record of the run is the file, to the letter."""
    file = HERE / f"{name}.txt"
    text = SCENARIOS[name]().text()

    if request.config.getoption("--rewrite"):
        file.write_text(text, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == text


def test_every_scenario_file_has_its_scenario() -> None:
    assert {file.stem for file in HERE.glob("*.txt")} == set(SCENARIOS)

"""Whole elections as text, to be read beside the seed page: who says what to whom, and why states change.

`pytest tests/scenarios --rewrite` writes the files anew; the difference is then part of the review.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.core import events as ev
from service_api import Role
from service_api.types import CorrelationId, MemberId
from service_api.wire.session import SessionConnectRequest
from tests.scenarios.dialogue import Dialogue
from tests.unit.cluster.core.node import MS, Node

HERE = Path(__file__).parent


def election_of_two() -> Dialogue:
    """Source: seed 001, "Example Election"."""
    story = Dialogue("An election of two members of three", {1: 0.25, 2: 0.75})
    for member_id in (1, 2):
        story.prepare(member_id, 4064, candidate_term_id=0)

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
        story.prepare(node.member_id, 1312, candidate_term_id=0)

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


SCENARIOS: dict[str, Callable[[], Dialogue]] = {"election-of-two": election_of_two, "fail-over": fail_over}


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

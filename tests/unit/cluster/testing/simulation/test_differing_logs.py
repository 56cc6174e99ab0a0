"""Members whose logs differ in bytes that no check sees: who is wrong takes those of independent others, or holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from tests.facts import has_facts
from tests.simulation.digest_scenarios import forge, log_of
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_repair import is_back
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper
from trimaran.cluster.core.digests.digest_comparison import DigestComparison
from trimaran.cluster.core.log.log_comparison import LogDifference
from trimaran.cluster.core.log.log_copies import LogCopies
from trimaran.cluster.messages.digests import ServiceDigest
from trimaran.cluster.runtime.files.log_copies_file import LOG_COPIES_FILE_NAME, LogCopiesFile, read_log_copies
from trimaran.cluster.testing.simulation.cluster import Member, Settings, SimulatedCluster
from trimaran.service_api import ServiceDivergedError

TEXT = b"client-0 20 "
"""The text of the message that is changed."""


class Unwatched(SmallCluster):
    """A cluster whose members may differ: the product alone looks."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(2, settings, Keeper)
        self.exits: dict[int, list[BaseException | None]] = {}
        self.keepers: dict[int, Keeper] = {}
        self.cluster = SimulatedCluster(2, settings, self._make_keeper)
        self.cluster.on_member_exit = lambda member, error: self.exits.setdefault(member.member_id, []).append(error)

    def _make_keeper(self, member: Member) -> Keeper:
        self.keepers[member.member_id] = Keeper()
        return self.keepers[member.member_id]

    def states(self) -> set[bytes]:
        """The different states of the services."""
        return {keeper.state_hash() for keeper in self.keepers.values()}


@contextmanager
def unwatched(settings: Settings = QUICK) -> Iterator[Unwatched]:
    kept = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    made = Unwatched(settings)
    try:
        yield made
    finally:
        made.cluster.close()
        structlog.configure(**kept)


@pytest.fixture
def small() -> Iterator[Unwatched]:
    with unwatched() as made:
        made.start()
        made.send(60, length=400)
        yield made


def restart(small: SmallCluster, *members: Member) -> None:
    for member in members:
        small.cluster.kill(member.member_id)
    for member in members:
        small.cluster.start(member.member_id)


def difference_of(member: Member) -> LogDifference | None:
    held = None if member.node is None else member.node.module.ctx.held
    return held if isinstance(held, LogDifference) else None


def copies_of(member: Member) -> LogCopies:
    return read_log_copies(member.config.directory / "cluster" / LOG_COPIES_FILE_NAME, member.machine.disk)


def note_copy(member: Member, text: str) -> None:
    """Have a member that is down know its log for a copy."""
    disk, path = member.machine.disk, member.config.directory / "cluster" / LOG_COPIES_FILE_NAME
    LogCopiesFile(path, LogCopies.decode_text(text), disk).persist()


@pytest.mark.parametrize("is_leader", [False, True], ids=["follower", "leader"])
def test_a_member_whose_log_alone_differs_takes_what_the_others_have(small: Unwatched, *, is_leader: bool) -> None:
    member = small.leader if is_leader else small.follower
    whole = log_of(member)
    forge(member, TEXT)

    restart(small, member)
    small.wait(lambda: log_of(member)[: len(whole)] == whole and is_back(small, member), limit_ns=60 * SECOND)

    assert small.exits == {}
    small.send(5)
    assert len(small.states()) == 1


def hear_no_digest(patch: pytest.MonkeyPatch, deaf_id: int) -> None:
    """The others' digests do not reach a member: they started again before its link was up."""
    real = DigestComparison.on_digest

    def on_digest(self: DigestComparison, message: ServiceDigest) -> None:
        if self._ctx.config.member_id != deaf_id:
            real(self, message)

    patch.setattr(DigestComparison, "on_digest", on_digest)


@pytest.mark.parametrize("hears_digests", [True, False])
def test_two_members_with_the_bytes_of_one_source_do_not_outvote_the_third(
    small: Unwatched, monkeypatch: pytest.MonkeyPatch, *, hears_digests: bool
) -> None:
    source, right = small.leader, small.followers[1]
    copy = small.followers[0]
    if not hears_digests:
        hear_no_digest(monkeypatch, source.member_id)
    begin, end = forge(source, TEXT)
    assert forge(copy, TEXT) == (begin, end)
    end_position = small.leader.node.module.ctx.commit_position  # type: ignore[union-attr]
    members = [source, copy, right]
    for member in members:
        small.cluster.kill(member.member_id)
    note_copy(copy, f"0-{end_position}:{source.member_id}")
    for member in members:
        small.cluster.start(member.member_id)
    groups = {frozenset((source.member_id, copy.member_id)), frozenset((right.member_id,))}
    small.wait(
        lambda: all(
            (found := difference_of(member)) is not None and set(map(frozenset, found.groups)) == groups
            for member in members
        ),
        limit_ns=60 * SECOND,
    )

    for member in members:
        difference = difference_of(member)
        assert difference is not None
        assert (difference.position, difference.stop_position) == (begin, end)
    assert small.exits == {}
    answered = len(small.answers)
    small.cluster.add_client("held", lambda: small._client("held", 1, 8))
    small.cluster.run_until(lambda: False, limit_ns=10 * SECOND)
    assert len(small.answers) == answered


def test_an_operator_says_whose_log_is_valid(small: Unwatched) -> None:
    source, (copy, right) = small.leader, small.followers
    whole = log_of(right)
    members = [source, copy, right]
    forge(source, TEXT)
    forge(copy, TEXT)
    for member in members:
        small.cluster.kill(member.member_id)
    note_copy(copy, f"0-100000:{source.member_id}")
    for member in members:
        small.cluster.start(member.member_id)
    small.wait(lambda: all(difference_of(member) for member in members), limit_ns=60 * SECOND)

    for member in members:
        assert member.node is not None
        member.node.parts.repair.comparer.trust(right.member_id)
    small.wait(lambda: all(log_of(each)[: len(whole)] == whole for each in members), limit_ns=60 * SECOND)
    small.wait(lambda: small.is_at_rest(members), limit_ns=60 * SECOND)

    small.send(5)
    assert len(small.states()) == 1
    assert [difference_of(member) for member in members] == [None] * 3


def test_a_member_whose_service_differs_still_stops_and_says_that_the_log_does_not(small: Unwatched) -> None:
    member = small.follower
    small.keepers[member.member_id].payloads.append("odd")

    small.cluster.add_client("more", lambda: small._client("more", 40, 400))
    small.wait(lambda: member.member_id in small.exits, limit_ns=60 * SECOND)

    (error,) = small.exits[member.member_id]
    assert isinstance(error, ServiceDivergedError)
    others = {each.member_id for each in small.cluster.members.values()} - {member.member_id}
    assert has_facts(str(error), *(f"member {each} from 0" for each in others))


def test_a_member_with_a_new_disk_notes_whose_log_it_has_copied(small: Unwatched) -> None:
    member = small.follower
    small.cluster.kill(member.member_id)
    small.cluster.wipe(member.member_id)
    position = small.leader.node.module.ctx.commit_position  # type: ignore[union-attr]

    small.cluster.start(member.member_id)
    small.wait(lambda: is_back(small, member), limit_ns=60 * SECOND)
    assert member.node is not None
    noted = member.node.module.ctx.log_copies
    assert noted.find_sources(0, position) == {small.leader.member_id}
    assert noted.ranges[-1].stop_position <= small.leader.node.module.ctx.log_buffer.append_position  # type: ignore[union-attr]
    assert copies_of(member).find_sources(0, position) == {small.leader.member_id}

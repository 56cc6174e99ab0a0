"""When a new cluster may be made although members of the old one live: nothing that they have is lost by it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import member_status
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind
from trimaran.cluster.operating.salvage.choice import SalvageChoice
from trimaran.cluster.operating.salvage.holding import Holding
from trimaran.cluster.operating.salvage.living import OldMember, why_not_gone
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.service_api.types import MemberId

END = 4096


@dataclass
class GivenDirectory:
    """A directory of a member that was given, as far as it is asked here."""

    member_id: int
    end_position: int = END
    last_term_id: int = 3
    is_usable: bool = True
    damage: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"node-{self.member_id}"


def configured(member_id: int, kind: MemberKind = MemberKind.VOTER) -> ConfiguredMember:
    (found,) = parse_members(f"{member_id}=127.0.0.1:{9000 + 10 * member_id}")
    return ConfiguredMember(found.configured().member_id, kind, found.configured().endpoints)


def why(
    given: list[GivenDirectory],
    found: list[OldMember],
    *,
    voter_count: int = 3,
    others: tuple[ConfiguredMember, ...] = (),
    abandoned: tuple[int, ...] = (),
) -> str | None:
    members = (*(configured(member_id) for member_id in range(voter_count)), *others)
    choice = SalvageChoice(
        [cast("Holding", each) for each in given],
        chosen=cast("Holding", given[0]),
        configuration=Configuration.of_settings(members),
    )
    return why_not_gone(choice, found, abandoned=abandoned)


def running(member_id: int, *, append: int = END, commit: int = END, term: int = 3, votes: bool = True) -> OldMember:
    status = member_status(member_id, append=append, commit=commit, term=term)
    return OldMember(MemberId(member_id), f"127.0.0.1:{member_id}", votes, True, "runs", status)


def silent(member_id: int) -> OldMember:
    return OldMember(MemberId(member_id), f"127.0.0.1:{member_id}", True, True, "no answer")


def dead(member_id: int) -> OldMember:
    return OldMember(MemberId(member_id), f"127.0.0.1:{member_id}", True, False, "nobody listens")


def test_living_members_and_directories_that_are_a_majority_together_are_to_be_started() -> None:
    for living in (running(0), running(0, append=0, commit=0), silent(0)):
        told = why([GivenDirectory(2)], [living, dead(1), dead(2)])
        assert told is not None
        assert has_facts(told, "Start member 2", "[0]", "--abandon")


def test_directories_that_could_not_be_started_are_no_part_of_a_majority() -> None:
    found = [running(0), dead(1), dead(2)]

    assert why([GivenDirectory(2, damage=["at position 64"])], found) is None
    assert why([GivenDirectory(2, is_usable=False, damage=[])], found) is None


def test_copy_of_the_directory_of_a_member_that_runs_counts_once() -> None:
    assert why([GivenDirectory(0)], [running(0), dead(1), dead(2)]) is None


def test_directories_alone_are_taken_even_if_they_are_a_majority() -> None:
    assert why([GivenDirectory(0), GivenDirectory(1)], [dead(0), dead(1), dead(2)]) is None


def test_member_that_runs_with_more_log_is_not_passed_over() -> None:
    """One of five runs and one left a directory: no majority, but the first may have what clients were told."""
    others = [dead(member_id) for member_id in range(1, 5)]
    for living in (running(0, append=END + 32), running(0, append=64, commit=64, term=4), running(0, commit=END + 32)):
        told = why([GivenDirectory(4)], [living, *others], voter_count=5)
        assert told is not None
        assert has_facts(told, "member 0", f"position={END}", "node-4", "--abandon")
        assert why([GivenDirectory(4)], [living, *others], voter_count=5, abandoned=(0,)) is None
    for behind in (running(0), running(0, append=END + 64, commit=64, term=2), silent(0)):
        assert why([GivenDirectory(4)], [behind, *others], voter_count=5) is None


def test_learner_that_runs_counts_in_no_majority_and_is_not_passed_over_with_more_log() -> None:
    learner = configured(7, MemberKind.LEARNER)
    found = [dead(0), dead(1), dead(2)]

    assert why([GivenDirectory(2)], [*found, running(7, votes=False)], others=(learner,)) is None
    told = why([GivenDirectory(2)], [*found, running(7, append=END + 32, votes=False)], others=(learner,))
    assert told is not None
    assert has_facts(told, "member 7", "--abandon")


def test_majority_that_may_be_alive_is_never_passed_over() -> None:
    for abandoned in ((), (0, 1)):
        told = why([GivenDirectory(2)], [running(0), silent(1), dead(2)], abandoned=abandoned)
        assert told is not None
        assert has_facts(told, "2 of 3 voters", "--gone")

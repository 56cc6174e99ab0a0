"""What a member makes of the fields of services' states that members with other code tell it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.digests import field_comparison
from trimaran.cluster.messages.digests import FIELD_LIMIT, DigestKind, FieldDigest, ServiceDigest, StateFields
from trimaran.service_api.types import MemberId

POSITION = 4096
OLD, NEW = 5, 6


class Upgrading:
    """Member 0, which runs the old code, and a member 1 with the new code unless it says otherwise."""

    def __init__(self) -> None:
        self.solo = Solo(terms=((0, 0, 1 << 20),), code_digest=OLD)
        self.fields = self.solo.module.fields
        self.solo.take()

    def own(self, position: int = POSITION, /, **values: int) -> None:
        self.fields.on_replay_fields(0, position, digests(values))

    def told(
        self,
        position: int = POSITION,
        /,
        *,
        member_id: int = 1,
        code: int = NEW,
        type_digest: int = 0,
        **values: int,
    ) -> None:
        self.feed(position, values, member_id=member_id, code=code, type_digest=type_digest)

    def feed(
        self, position: int, values: Mapping[str, int], *, member_id: int = 1, code: int = NEW, type_digest: int = 0
    ) -> None:
        self.solo.feed(
            StateFields(
                member_id=MemberId(member_id),
                service_id=0,
                code_digest=code,
                log_position=position,
                fields=digests(values, type_digest),
            )
        )

    def says_code(self, code: int, *, member_id: int = 1) -> list[StateFields]:
        effects = self.solo.feed(
            ServiceDigest(
                member_id=MemberId(member_id),
                kind=DigestKind.OUTPUTS,
                service_id=-1,
                code_digest=code,
                log_position=64,
                digest=b"x",
            )
        )
        return [
            each.message
            for each in effects
            if isinstance(each, fx.SendToMember) and each.member_id == member_id and type(each.message) is StateFields
        ]

    @property
    def found(self) -> Mapping[str, Mapping[MemberId, str]]:
        return {each.field: each.values for each in self.fields.differences}


def digests(values: Mapping[str, int], type_digest: int = 0) -> tuple[FieldDigest, ...]:
    return tuple(
        FieldDigest(name=name, type_digest=type_digest, digest=b"%d" % value, value=str(value))
        for name, value in values.items()
    )


def test_a_field_that_differs_is_named_once_and_stops_nobody() -> None:
    upgrading = Upgrading()

    upgrading.own(total=5, count=3)
    upgrading.told(total=10, count=3)
    upgrading.own(POSITION + 32, total=6, count=4)
    upgrading.told(POSITION + 32, total=12, count=4)

    effects = [each for each in upgrading.solo.effects if isinstance(each, fx.FieldDiffered)]
    assert [str(each.difference) for each in effects] == [
        "states differ while code differs: field=total service_id=0 log_position=4096 by member: 0=5 1=10"
    ]
    assert not any(isinstance(each, fx.DigestsDiffered) for each in upgrading.solo.effects)


def test_a_member_that_is_told_first_compares_when_it_gets_there() -> None:
    upgrading = Upgrading()
    upgrading.told(total=10)
    assert upgrading.found == {}

    upgrading.own(total=5)

    assert upgrading.found == {"total": {0: "5", 1: "10"}}


def test_a_field_that_only_one_code_declares_is_not_compared() -> None:
    upgrading = Upgrading()

    upgrading.own(total=5, old=1)
    upgrading.told(total=5, new=2)

    assert upgrading.found == {}


def test_a_field_that_both_declare_with_different_types_is_not_compared() -> None:
    upgrading = Upgrading()

    upgrading.own(total=5)
    upgrading.told(total=6, type_digest=77)

    assert upgrading.found == {}


def test_each_member_that_differs_is_named() -> None:
    upgrading = Upgrading()

    upgrading.own(total=5)
    upgrading.told(total=10)
    upgrading.told(total=10, member_id=2)

    assert upgrading.found == {"total": {0: "5", 1: "10", 2: "10"}}


def test_nothing_is_told_while_all_members_run_the_same_code() -> None:
    upgrading = Upgrading()
    upgrading.says_code(OLD)

    upgrading.own(total=5)

    sent = [each for each in upgrading.solo.take() if isinstance(each, fx.SendToMember)]
    assert not any(isinstance(each.message, StateFields) for each in sent)


def test_a_member_with_other_code_is_told_what_was_found_before_it_came() -> None:
    upgrading = Upgrading()
    upgrading.own(total=5)
    upgrading.own(POSITION + 32, total=6)

    (first, second), again = upgrading.says_code(NEW), upgrading.says_code(NEW)

    assert (first.log_position, first.code_digest, first.fields) == (POSITION, OLD, digests({"total": 5}))
    assert second.log_position == POSITION + 32
    assert again == []


def test_a_difference_ends_with_the_process_that_had_it_and_with_equal_code() -> None:
    for is_restarted in (True, False):
        upgrading = Upgrading()
        upgrading.own(total=5)
        upgrading.told(total=10)
        assert upgrading.found

        if is_restarted:
            upgrading.solo.feed(ev.LinkChanged(MemberId(1), is_up=False))
        else:
            upgrading.says_code(OLD)

        assert upgrading.found == {}


def test_a_difference_comes_back_with_the_link_where_the_process_stayed() -> None:
    upgrading = Upgrading()
    upgrading.own(total=5)
    upgrading.told(total=10)
    upgrading.solo.feed(ev.LinkChanged(MemberId(1), is_up=False), ev.LinkChanged(MemberId(1), is_up=True))

    upgrading.told(total=10)

    assert upgrading.found == {"total": {0: "5", 1: "10"}}


def test_what_is_kept_of_a_member_is_bounded() -> None:
    upgrading = Upgrading()
    for number in range(3 * field_comparison.KEPT_COUNT):
        upgrading.feed(32 * number, {f"field_{each}": each for each in range(2 * FIELD_LIMIT)})

    upgrading.own(0, field_1=2)
    upgrading.own(32 * (3 * field_comparison.KEPT_COUNT - 1), **{f"field_{FIELD_LIMIT}": 0}, field_1=2)

    assert [*upgrading.found] == ["field_1"]
    assert upgrading.fields.differences[0].log_position == 32 * (3 * field_comparison.KEPT_COUNT - 1)

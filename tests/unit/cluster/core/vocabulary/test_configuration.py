"""Configurations: what they are as text, where they are found in the log, and what may follow one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.cluster.core.rosters import configured
from trimaran.cluster.core.vocabulary.configuration import (
    CONFIGURATION_MARK,
    MEMBER_LIMIT,
    ChangeRefusedError,
    Configuration,
    ConfigurationCause,
    ConfigurationHistory,
    MemberKind,
    decode_text,
    find_configurations,
    with_member,
    with_moved,
    with_promoted,
    without_member,
)
from trimaran.cluster.core.vocabulary.member_change import MemberChange, MemberChangeKind
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.service_api import ConfigurationError, RemoteProtocolError
from trimaran.service_api.groups import Group
from trimaran.service_api.types import LOG_STREAM_ID, MemberId
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.log.messages import encode_session_message


def of(*ids: int, at: int = 0, high: int | None = None) -> Configuration:
    """Voters of these ids."""
    members = tuple(configured(each) for each in ids)
    return Configuration(members=members, high_member_id=max(ids) if high is None else high, log_position=at)


def frames_of(message: bytes, *, term_offset: int = 0) -> bytes:
    """One log entry."""
    return encode_message(
        message,
        term_offset=term_offset,
        session_id=7,
        stream_id=LOG_STREAM_ID,
        term_id=0,
        mtu_length=65504,
    )


def entry(configuration: Configuration) -> bytes:
    """The message of a configuration."""
    return configuration.to_event(leadership_term_id=1, timestamp=2, leader_member_id=0, before=None).encode()


def test_text_is_read_back_as_it_was_written() -> None:
    written = replace(
        with_promoted(with_member(of(0, 1, 2, at=96), None, MemberKind.LEARNER, configured(5).endpoints), 3),
        note="out of two directories",
    )

    assert decode_text(written.encode_text(), 640) == replace(written, log_position=640)
    placed = replace(written, log_position=320)
    assert decode_text(placed.encode_text(is_placed=True), None) == placed


def test_text_of_aeron_says_nothing_of_ours() -> None:
    assert decode_text("0,localhost:1,localhost:2,localhost:3,localhost:4,localhost:5|", 96) is None


def test_what_a_later_version_adds_is_passed_over() -> None:
    text = of(0, 1).encode_text().replace('{"cause"', '{"weather":"fine","cause"')

    assert decode_text(text, 96) == replace(of(0, 1), log_position=96)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"voter"', '"emperor"'),
        ('"high":1', '"high":0'),
        ('"high":1', '"high":true'),
        ('"members":[[0', '"members":[[1'),
        ('"members":[[0', '"members":[[-1'),
        ('"host0:9000"', '"host0:9000","host0:9001"'),
        ('"host0:9000"', '"host1:9000"'),
        ('"host0:9000"', '""'),
        ('"host0:9000"', "7"),
        ('"cause":"form"', '"cause":"whim"'),
        ("{", "["),
        ("]]", "]"),
    ],
)
def test_text_that_is_no_configuration_is_refused_and_says_where(old: str, new: str) -> None:
    text = of(0, 1).encode_text()
    assert old in text

    with pytest.raises(RemoteProtocolError, match="configuration at log_position=96"):
        decode_text(text.replace(old, new, 1), 96)


def test_text_nested_without_end_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="configuration at log_position=96"):
        decode_text(CONFIGURATION_MARK + "[" * 100_000, 96)


def test_configuration_is_found_among_other_entries_and_says_where_it_ends() -> None:
    before = frames_of(encode_session_message(1, 5, 6, b"x" * 40))
    found = frames_of(entry(of(0, 1, 2)), term_offset=len(before))
    after = frames_of(encode_session_message(1, 5, 7, b"y" * 40), term_offset=len(before) + len(found))

    assert list(find_configurations(before + found + after, 6400)) == [
        replace(of(0, 1, 2), log_position=6400 + len(before) + len(found))
    ]


def test_payload_that_looks_like_a_configuration_is_none() -> None:
    """An attacker can send the very frame of one as a payload; it begins where no frame begins."""
    inner = frames_of(entry(of(9)))
    for lead in range(0, 64, 8):
        outer = frames_of(encode_session_message(1, 5, 6, bytes(lead) + inner))

        assert CONFIGURATION_MARK.encode() in outer
        assert list(find_configurations(outer, 0)) == []


def test_history_goes_forward_with_the_log_and_back_with_a_truncation() -> None:
    history = ConfigurationHistory(of(0, 1, 2))
    history.append(of(0, 1, 2, 3, at=320))
    history.append(of(0, 1, 2, 3, at=320))
    history.append(of(0, 1, 3, at=640))

    assert history.current == of(0, 1, 3, at=640)
    assert [history.committed(position).log_position for position in (0, 319, 320, 639, 640, 9999)] == [
        0, 0, 320, 320, 640, 640,
    ]  # fmt: skip

    history.truncate(640)
    assert history.current == of(0, 1, 3, at=640)
    history.truncate(639)
    assert history.current == of(0, 1, 2, 3, at=320)
    history.truncate(0)
    assert history.current == of(0, 1, 2)


def test_history_remembers_so_many_and_no_more() -> None:
    history = ConfigurationHistory(of(0))
    for position in range(32, 32 * 200, 32):
        history.append(of(0, at=position))

    assert len(history.entries) == 64
    assert history.current == of(0, at=32 * 199)


def test_member_comes_in_as_a_learner_with_the_next_free_id() -> None:
    made = with_member(of(0, 1, 2, at=96, high=7), None, MemberKind.LEARNER, configured(8).endpoints)

    assert made.voter_ids == {0, 1, 2}
    assert made.describe() == "0, 1, 2, 8 (learner)"
    assert (made.high_member_id, made.cause, made.previous_log_position) == (8, ConfigurationCause.ADD, 96)
    assert with_promoted(made, 8).voter_ids == {0, 1, 2, 8}


@pytest.mark.parametrize(
    ("member_id", "endpoints", "said"),
    [
        (2, configured(8).endpoints, "member_id=2 .* 8"),
        (5, configured(8).endpoints, "member_id=5 expected 8"),
        (8, configured(1).endpoints, "endpoint=host1:9000 .*member 8 .*member 1"),
        (9, configured(8).endpoints[:4] + configured(2).endpoints[4:], "member 9 .*member 2"),
        (1_000_009, configured(8).endpoints, "member_id=1000009 expected 8 to 1000008"),
        (1 << 31, configured(8).endpoints, "member_id=2147483648 expected 8 to 1000008"),
    ],
)
def test_member_that_cannot_come_in_is_refused(
    member_id: int, endpoints: tuple[str, str, str, str, str], said: str
) -> None:
    with pytest.raises(ChangeRefusedError, match=said):
        with_member(of(0, 1, 2, high=7), member_id, MemberKind.LEARNER, endpoints)


def test_no_member_comes_in_once_the_ids_are_used_up() -> None:
    """Ids are int32 in the log and in documents: a leader that appended a higher one stopped."""
    last = (1 << 31) - 1

    with pytest.raises(ChangeRefusedError, match="member_id=2147483648 expected at most 2147483647"):
        with_member(of(0, 1, 2, high=last), None, MemberKind.LEARNER, configured(8).endpoints)


def test_member_that_moves_to_the_place_of_another_is_told_whose_it_is() -> None:
    with pytest.raises(ChangeRefusedError, match=r"endpoint=host1:9000 .*member 0 .*member 1"):
        with_moved(of(0, 1), 0, configured(1).endpoints)


def test_changes_of_what_is_no_member_are_refused_and_name_the_members() -> None:
    current = of(0, 1)

    for change in (with_promoted, without_member):
        with pytest.raises(ChangeRefusedError, match=r"member_id=4 .*: .*0, 1"):
            change(current, 4)
    with pytest.raises(ChangeRefusedError, match="member_id=4 is no member"):
        with_moved(current, 4, configured(4).endpoints)
    with pytest.raises(ChangeRefusedError, match=r"member_id=1 .*voter already"):
        with_promoted(current, 1)
    with pytest.raises(ChangeRefusedError, match="endpoints already"):
        with_moved(current, 1, configured(1).endpoints)


def test_the_last_voter_stays() -> None:
    learner = with_member(of(0), None, MemberKind.LEARNER, configured(1).endpoints)

    with pytest.raises(ChangeRefusedError, match=r"member_id=0 .*last voter"):
        without_member(learner, 0)
    assert without_member(learner, 1).describe() == "0"


def test_a_witness_comes_in_as_one_and_counts() -> None:
    endpoints = configured(2).endpoints

    made = MemberChange(MemberChangeKind.ADD_WITNESS, None, endpoints).apply_to(of(0, 1))

    assert made.describe() == "0, 1, 2 (witness)"
    assert made.voter_ids == {0, 1, 2}
    with pytest.raises(ChangeRefusedError, match=r"member_id=2 .*witness already"):
        with_promoted(made, 2)


def test_witnesses_are_never_a_majority() -> None:
    """Else what they alone commit would be in no service, and nobody there could take it over."""
    four = with_member(
        with_member(of(0, 1), None, MemberKind.WITNESS, configured(2).endpoints),
        None,
        MemberKind.WITNESS,
        configured(3).endpoints,
    )

    assert four.describe() == "0, 1, 2 (witness), 3 (witness)"
    with pytest.raises(ChangeRefusedError, match=r"witnesses=2 of 3 .*majority"):
        without_member(four, 0)
    assert without_member(without_member(four, 3), 0).describe() == "1, 2 (witness)"


def test_there_are_so_many_members_and_no_more() -> None:
    full = of(0)
    for number in range(1, MEMBER_LIMIT):
        full = with_member(full, None, MemberKind.LEARNER, tuple(f"h:{number}{each}" for each in range(5)))  # type: ignore[arg-type]

    with pytest.raises(ChangeRefusedError, match="members=65 expected 1 to 64"):
        with_member(full, None, MemberKind.LEARNER, ("x:1", "x:2", "x:3", "x:4", "x:5"))


def test_a_configuration_keeps_the_group_of_its_log_through_every_change() -> None:
    """It is in the log, in snapshots and in the members file, and a cluster without groups says nothing of it."""
    formed = replace(of(0, 1, 2, at=96), group=Group(1, 4))

    changed = without_member(with_member(formed, None, MemberKind.LEARNER, configured(5).endpoints), 0)

    assert changed.group == Group(1, 4)
    assert decode_text(changed.encode_text(), 128) == replace(changed, log_position=128)
    assert "group" not in of(0, 1, 2).encode_text()


@pytest.mark.parametrize("group", ["4/4", "1", 3, None])
def test_a_group_that_there_is_not_makes_a_configuration_unreadable(group: object) -> None:
    """The member cannot tell whose log that is."""
    text = replace(of(0, 1, at=96), group=Group(1, 4)).encode_text().replace('"1/4"', json.dumps(group))

    with pytest.raises(RemoteProtocolError, match="configuration at log_position=128"):
        decode_text(text, 128)


def test_a_log_of_another_group_is_refused_by_both() -> None:
    """The settings of a member may have changed; an empty log says nothing."""
    in_log = Roster(MemberId(0), replace(of(0, 1, at=96), group=Group(1, 4)))

    in_log.check_group(Group(1, 4))
    Roster(MemberId(0), of(0, 1)).check_group(Group(1, 4))
    with pytest.raises(ConfigurationError, match=r"group 1 of 4.*group 1 of 2"):
        in_log.check_group(Group(1, 2))
    with pytest.raises(ConfigurationError, match=r"group 0 of 1.*group 1 of 2"):
        Roster(MemberId(0), of(0, 1, at=96)).check_group(Group(1, 2))

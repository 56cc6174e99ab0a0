"""What is wrong with a member or a cluster: every kind with a case just below its limit, and one just beyond."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import member_status
from trimaran.cluster.documents.health import (
    CLUSTER_RULES,
    MEMBER_RULES,
    ClusterRule,
    ClusterView,
    MemberRule,
    Problem,
    ProblemKind,
    describe_upgrade,
    judge_cluster,
    judge_member,
    why_not_ready,
)
from trimaran.cluster.settings.health_limits import HealthLimits
from trimaran.service_api.documents.document import LINE_LENGTH_LIMIT
from trimaran.service_api.documents.member_status import (
    CertificateStatus,
    ClockStatus,
    ColdStorageStatus,
    DamagedPlaceStatus,
    DifferingMember,
    DivergenceStatus,
    ElectionStatus,
    HeldStatus,
    LogDifferenceStatus,
    MemberStatus,
    ServiceErrorsStatus,
    StandbyStatus,
    StateDifferenceStatus,
    SyncStatus,
)

GIB = 1 << 30
LIMITS = HealthLimits(
    max_lag_bytes=1_000,
    max_stall_ms=10_000,
    max_log_after_snapshot_bytes=GIB,
    max_snapshot_age_ms=3_600_000,
    min_disk_free_percent=5,
    min_disk_time_ms=1_800_000,
    max_upgrade_ms=3_600_000,
)

PLACE = DamagedPlaceStatus(recording_id=0, position=640, file="0-0.rec", reason="wrong checksum")


STATE_DIFFERENCE = StateDifferenceStatus(
    service_id=0,
    field="total",
    log_position=4096,
    member_ids=[2],
    detail="states differ while code differs: field=total service_id=0 log_position=4096 by member: 1=5 2=10",
)


def divergence(member_ids: list[int], *, has_majority: bool) -> DivergenceStatus:
    return DivergenceStatus(
        kind="state",
        service_id=0,
        log_position=4096,
        member_ids=member_ids,
        has_majority=has_majority,
        detail="states of service 0 differ at log_position=4096 by member: 0=308 1=210 2=313",
    )


def cold(failing_s: float | None) -> ColdStorageStatus:
    failure = None if failing_s is None else "cannot write s3://b/x: down"
    return ColdStorageStatus(
        pending_bytes=GIB, shipped_count=0, failing_s=failing_s, failure=failure, catchup_start_position=0
    )


def certificate(*, days: float) -> CertificateStatus:
    return CertificateStatus(
        file="member-1.pem", subject="CN=member-1", expires_at_ms=1_800_000_000_000, expires_in_s=days * 86_400
    )


def syncs(*, slow: int, of: int) -> SyncStatus:
    """What a member with so many slow syncs says of its disk."""
    return SyncStatus(count=of, slow_count=slow, slow_s=0.1, p99_s=0.205, max_s=0.31)


def clock(problem: str | None) -> ClockStatus:
    """What a member says of the clocks."""
    return ClockStatus(majority_difference_s=None, cluster_time_ahead_s=0.0, problem=problem, members=[])


WELL: dict[ProblemKind, list[dict[str, Any]]] = {
    ProblemKind.DELIVERY_STALLED: [
        {"stalled_s": 10.0, "delivered_position": 64},
        {"stalled_s": None, "delivered_position": 64},
        {"state": "CANVASS", "stalled_s": None},
    ],
    ProblemKind.REPLAY_STALLED: [{"state": "FOLLOWER_REPLAY", "stalled_s": 9.9}, {"state": "CANVASS"}],
    ProblemKind.NO_SNAPSHOT: [
        {"log_after_snapshot_bytes": GIB, "log_after_snapshot_s": 1e6},  # a small log needs none, however old it is
        {"log_after_snapshot_bytes": 100 * GIB, "log_after_snapshot_s": 3_600.0},  # nor does a busy one, soon after
        {"log_after_snapshot_bytes": 100 * GIB, "log_after_snapshot_s": None},
    ],
    ProblemKind.NO_SNAPSHOTS_POSSIBLE: [
        {"log_after_snapshot_bytes": GIB, "log_after_snapshot_s": 1e6, "snapshotless_services": ["Echo"]},
        {"log_after_snapshot_bytes": 100 * GIB, "log_after_snapshot_s": 60.0},
    ],
    ProblemKind.COLD_STORAGE_FAILS: [
        {"cold_storage": None},
        {"cold_storage": cold(None)},
        {"cold_storage": cold(59.0)},
    ],
    ProblemKind.SYNC_SLOW: [
        {"syncs": None},
        {"syncs": syncs(slow=4, of=4)},  # a busy machine has some at times
        {"syncs": syncs(slow=9, of=1_000)},  # fewer than one in a hundred
    ],
    ProblemKind.DISK_FULL: [
        {"disk_free_bytes": 5 * GIB, "disk_size_bytes": 100 * GIB},
        {"disk_free_bytes": 0, "disk_size_bytes": None},
        {"disk_free_bytes": 0, "disk_size_bytes": 0},
    ],
    ProblemKind.DISK_FILLS: [
        {"disk_free_bytes": 50 * GIB, "disk_size_bytes": 100 * GIB, "disk_full_in_s": None},
        {"disk_free_bytes": 50 * GIB, "disk_size_bytes": 100 * GIB, "disk_full_in_s": 1_800.0},
    ],
    ProblemKind.DESCRIPTORS_SCARCE: [
        {"connection_count": 89, "connection_limit": 100, "descriptor_count": 1_799, "descriptor_limit": 2_000},
        {"connection_count": 10_000, "connection_limit": None},
    ],
    ProblemKind.CERTIFICATE_EXPIRES: [{"certificate": None}, {"certificate": certificate(days=14.1)}],
    ProblemKind.DAMAGED: [{"damaged_places": [], "damaged_place_count": 0}],
    ProblemKind.NO_VOTE: [{"has_vote": True}, {"has_vote": False, "state": "CANVASS"}],
    ProblemKind.DIFFERS: [{"differing_members": []}],
    ProblemKind.CLOCK_OFF: [{"clock": None}, {"clock": clock(None)}],
    ProblemKind.SERVICE_HELD: [{"held": None}],
    ProblemKind.LOG_DIFFERS: [{"log_difference": None}],
    ProblemKind.DIVERGED: [{"divergences": [], "message_divergence_count": 0}],
    ProblemKind.MEMBER_DIVERGED: [{"divergences": []}],
    ProblemKind.QUERY_CHANGES_STATE: [{"query_change": None}],
    ProblemKind.STATES_DIFFER: [{"state_differences": []}],
}
ILL: list[tuple[ProblemKind, dict[str, Any], str]] = [
    (
        ProblemKind.STATES_DIFFER,
        {"state_differences": [STATE_DIFFERENCE]},
        STATE_DIFFERENCE.detail,
    ),
    (
        ProblemKind.CLOCK_OFF,
        {"clock": clock("its clock is 3,600.000 s ahead of the clocks of the majority")},
        "its clock is 3,600.000 s ahead of the clocks of the majority",
    ),
    (
        ProblemKind.DELIVERY_STALLED,
        {"stalled_s": 10.1, "delivered_position": 64},
        "nothing was delivered for 10 s: delivered=64 commit=123456",
    ),
    (
        ProblemKind.DELIVERY_STALLED,
        {"stalled_s": 61.0, "delivered_position": 64, "module_state": "SNAPSHOT"},
        "nothing was delivered for 61 s while it takes a snapshot: delivered=64 commit=123456",
    ),
    (
        ProblemKind.REPLAY_STALLED,
        {"state": "LEADER_REPLAY", "stalled_s": 11.0, "delivered_position": 64},
        "LEADER_REPLAY without progress for 11 s: delivered=64 append=123456",
    ),
    (
        ProblemKind.NO_SNAPSHOT,
        {"log_after_snapshot_bytes": GIB + 1, "log_after_snapshot_s": 7_200.0, "snapshot_position": 96},
        "1,073,741,825 bytes of log and 2.0 h since the newest snapshot",
    ),
    (
        ProblemKind.NO_SNAPSHOT,
        {"log_after_snapshot_bytes": GIB + 1, "log_after_snapshot_s": 7_200.0},
        "1,073,741,825 bytes of log and 2.0 h since the log began",
    ),
    (
        ProblemKind.NO_SNAPSHOTS_POSSIBLE,  # told once: that there is no snapshot is no second problem
        {"log_after_snapshot_bytes": GIB + 1, "log_after_snapshot_s": 7_200.0, "snapshotless_services": ["A", "B"]},
        "1,073,741,825 bytes of log, and no on_take_snapshot in A, B",
    ),
    (
        ProblemKind.COLD_STORAGE_FAILS,
        {"cold_storage": cold(60.0)},
        "old log has not gone to cold storage for 60 s, and 1,024 MiB wait on its disk: cannot write s3://b/x: down",
    ),
    (
        ProblemKind.SYNC_SLOW,
        {"syncs": syncs(slow=5, of=5)},
        "5 of 5 syncs took 0.1 s or longer in the last minute: p99=0.205 s max=0.310 s",
    ),
    (
        ProblemKind.SYNC_SLOW,
        {"syncs": syncs(slow=10, of=1_000)},
        "10 of 1,000 syncs took 0.1 s or longer in the last minute: p99=0.205 s max=0.310 s",
    ),
    (
        ProblemKind.DISK_FULL,
        {"disk_free_bytes": 4 * GIB, "disk_size_bytes": 100 * GIB},
        "the disk of its directory has 4,096 MiB left, 4.0 % of 102,400 MiB",
    ),
    (
        ProblemKind.DISK_FILLS,
        {"disk_free_bytes": 50 * GIB, "disk_size_bytes": 100 * GIB, "disk_full_in_s": 1_600.0},
        "the disk of its directory is full in 27 min at the rate of the last minutes, 32.0 MiB/s: 51,200 MiB are left",
    ),
    (
        ProblemKind.DESCRIPTORS_SCARCE,
        {"connection_count": 90, "connection_limit": 100},
        "90 client connections of 100",
    ),
    (
        ProblemKind.DESCRIPTORS_SCARCE,
        {"descriptor_count": 1_800, "descriptor_limit": 2_000},
        "1,800 files and connections open of 2,000",
    ),
    (
        ProblemKind.CERTIFICATE_EXPIRES,
        {"certificate": certificate(days=13.9)},
        "the certificate expires in 13.9 days: file=member-1.pem not_after=2027-01-15 08:00 UTC",
    ),
    (
        ProblemKind.CERTIFICATE_EXPIRES,
        {"certificate": certificate(days=-1)},
        "the certificate has expired: file=member-1.pem not_after=2027-01-15 08:00 UTC",
    ),
    (
        ProblemKind.SERVICE_HELD,
        {
            "held": HeldStatus(log_position=576, callback="on_request", failure="MemoryError()"),
            "stalled_s": 61.0,
            "delivered_position": 64,
        },
        "its service stands before the entry that ends at log_position=576, where on_request raised MemoryError()",
    ),
    (
        ProblemKind.DAMAGED,
        {"damaged_places": [PLACE], "damaged_place_count": 3, "log_recording_id": 0},
        "cannot read its log: recording_id=0 position=640 file=0-0.rec, and 2 more places",
    ),
    (
        ProblemKind.DAMAGED,
        {"damaged_places": [PLACE], "damaged_place_count": 1, "log_recording_id": 7},
        "cannot read a recording that is not its log: recording_id=0 position=640 file=0-0.rec",
    ),
    (
        ProblemKind.NO_VOTE,
        {"has_vote": False},
        "it has forgotten its votes, or has never voted, so it is not counted yet",
    ),
    (
        ProblemKind.NO_VOTE,
        {"has_vote": False, "state": "CANVASS", "barred": "its directory was removed"},
        "its directory was removed",
    ),
    (
        ProblemKind.DIFFERS,
        {"differing_members": [DifferingMember(member_id=2, detail="service_count=1 here, 2 at member 2")]},
        "does not hear member 2: service_count=1 here, 2 at member 2",
    ),
    (
        ProblemKind.DIVERGED,
        {"divergences": [divergence([0, 1, 2], has_majority=False)]},
        "no majority agrees: states of service 0 differ at log_position=4096 by member: 0=308 1=210 2=313",
    ),
    (
        ProblemKind.DIVERGED,
        {"message_divergence_count": 3},
        "its service offered other messages than the log holds: count=3",
    ),
    (
        ProblemKind.MEMBER_DIVERGED,
        {"divergences": [divergence([2], has_majority=True)]},
        "members that differ from a majority: 2: states of service 0 differ at log_position=4096 by member: "
        "0=308 1=210 2=313",
    ),
    (
        ProblemKind.LOG_DIFFERS,
        {"log_difference": LogDifferenceStatus(position=640, stop_position=736, file="0-0.rec", groups=[[0, 1], [2]])},
        "it stands before a range of the log that differs among members 0,1 against 2: position=640 stop_position=736 "
        "file=0-0.rec",
    ),
    (
        ProblemKind.QUERY_CHANGES_STATE,
        {"query_change": "on_query changed the state: service=<Tally> query=b'' log_position=96"},
        "on_query changed the state: service=<Tally> query=b'' log_position=96",
    ),
]


def status(**changed: Any) -> MemberStatus:
    return member_status(1).model_copy(update=changed)


def test_every_kind_has_one_rule_and_one_line_of_advice() -> None:
    rules: list[ClusterRule | MemberRule] = [*CLUSTER_RULES, *MEMBER_RULES]

    assert sorted(rule.kind for rule in rules) == sorted(ProblemKind)
    for rule in rules:
        assert 20 < len(rule.advice) <= LINE_LENGTH_LIMIT, rule.kind
        assert "\n" not in rule.advice
    assert {rule.kind for rule in MEMBER_RULES} <= set(WELL) == {kind for kind, _, _ in ILL}, "add cases for a new rule"


@pytest.mark.parametrize("changed", [changed for cases in WELL.values() for changed in cases])
def test_a_status_within_the_limits_shows_no_problem(changed: Mapping[str, Any]) -> None:
    assert judge_member(status(**changed), LIMITS) == []
    assert why_not_ready(status(**changed), LIMITS) is None


@pytest.mark.parametrize(("kind", "changed", "detail"), ILL)
def test_a_status_beyond_a_limit_shows_the_problem(kind: ProblemKind, changed: Mapping[str, Any], detail: str) -> None:
    rule = next(rule for rule in MEMBER_RULES if rule.kind is kind)

    problems = judge_member(status(**changed), LIMITS)

    assert problems == [Problem(kind=kind, member_id=1, detail=detail, advice=rule.advice)]
    expected = None if rule.is_ready else f"{kind.value}: {detail}; {rule.advice}"
    assert why_not_ready(status(**changed), LIMITS) == expected


def test_a_member_of_another_cluster_is_named_by_the_leaders_or_the_most_frequent_id() -> None:
    mine, other = "3f9a0c12d45e77b1", "51e21e7bd9fa3e06"
    members = {i: member_status(i).model_copy(update={"cluster_id": mine if i else other}) for i in range(3)}
    unknown = {3: member_status(3).model_copy(update={"cluster_id": None})}
    led = ClusterView(statuses=members | unknown, leader=members[0], has_quorum=True, verdict="")
    leaderless = ClusterView(statuses=members | unknown, leader=None, has_quorum=False, verdict="no leader")
    asked = ClusterView(
        statuses={0: "other cluster: x"}, strangers=frozenset({0}), leader=None, has_quorum=False, verdict=""
    )

    found = [[p for p in judge_cluster(v, LIMITS) if p.kind is ProblemKind.OTHER_CLUSTER] for v in (led, leaderless)]

    assert [[problem.member_id for problem in problems] for problems in found] == [[1, 2], [0]]
    assert has_facts(found[1][0].detail, f"{other}", f"{mine}")
    assert [(problem.kind, problem.member_id) for problem in judge_cluster(asked, LIMITS)] == [
        (ProblemKind.OTHER_CLUSTER, 0)
    ]


def test_the_problems_of_a_cluster_come_first_and_then_member_by_member() -> None:
    full = member_status(0, state="LEADER", leader=0).model_copy(update={"disk_free_bytes": 1, "disk_size_bytes": GIB})
    away = "refused: no process listens there"
    view = ClusterView(statuses={2: away, 0: full, 1: away}, leader=full, has_quorum=False, verdict="no quorum")

    problems = judge_cluster(view, LIMITS)

    assert [(problem.kind.value, problem.member_id) for problem in problems] == [
        ("no_quorum", None),
        ("no_answer", 2),
        ("disk_full", 0),
        ("no_answer", 1),
    ]


def leaderless(*, barred: Collection[int], away: Collection[int] = (), voters: int = 3) -> ClusterView:
    """Members without a leader, some of which lost their directories."""
    statuses = {
        member_id: "refused: no process listens there"
        if member_id in away
        else member_status(member_id, state="CANVASS", leader=None).model_copy(
            update={"has_vote": False, "barred": "its directory was removed"} if member_id in barred else {}
        )
        for member_id in range(voters)
    }
    return ClusterView(
        statuses=statuses, voter_ids=frozenset(range(voters)), leader=None, has_quorum=False, verdict="no leader"
    )


def test_a_majority_that_lost_its_directories_is_named_with_the_command_that_helps() -> None:
    """Issue 44 §2: health said that the members that do not answer are to be started, and all three answered."""
    problems = judge_cluster(leaderless(barred={1, 2}), LIMITS)

    assert [(problem.kind.value, problem.member_id) for problem in problems] == [
        ("votes_lost", None),
        ("no_vote", 1),
        ("no_vote", 2),
    ]
    assert has_facts(problems[0].detail, "1, 2", "1 of 3", "2")
    assert "trimaran recover plan" in problems[0].advice


def test_votes_are_not_lost_while_members_that_are_away_may_have_theirs() -> None:
    """Members that do not answer may have their directories: they are to be started."""
    views = [leaderless(barred={1}, away={2}), leaderless(barred={1, 2}, voters=5), leaderless(barred=(), away={1})]

    for view in views:
        kinds = [problem.kind.value for problem in judge_cluster(view, LIMITS)]
        assert (kinds[0], "votes_lost" in kinds) == ("no_leader", False)


def test_a_member_that_is_not_in_the_term_says_why_it_does_not_stand() -> None:
    election = ElectionStatus(
        reason="node started",
        reason_kind="node_started",
        age_s=7.0,
        duration_s=None,
        leadership_term_id=None,
        refusal="a learner: members=0",
    )
    leader = member_status(0, state="LEADER", leader=0)
    apart = member_status(1, state="CANVASS", leader=None, election=election)

    (problem,) = judge_cluster(
        ClusterView(statuses={0: leader, 1: apart}, leader=leader, has_quorum=True, verdict=""), LIMITS
    )

    assert (problem.kind, problem.member_id) == (ProblemKind.NOT_IN_TERM, 1)
    assert has_facts(problem.detail, "CANVASS", "node started", "members=0")


@pytest.mark.parametrize("takes_part", [True, False])
def test_a_standby_counts_once_the_leader_has_heard_from_it(takes_part: bool) -> None:
    """Before that `trimaran snapshot take --standby`, after `trimaran health --wait`, was refused."""
    standby = StandbyStatus(
        member_id=3, snapshot_position=None, snapshot_age_s=None, is_copying=False, takes_part=takes_part
    )
    leader = member_status(0, state="LEADER", leader=0).model_copy(update={"standbys": [standby]})
    statuses = {0: leader, 3: member_status(3, leader=0)}

    problems = judge_cluster(ClusterView(statuses=statuses, leader=leader, has_quorum=True, verdict=""), LIMITS)

    assert [(problem.kind.value, problem.member_id) for problem in problems] == (
        [] if takes_part else [("not_in_term", 3)]
    )


def raising(age_s: float, log_position: int) -> dict[str, Any]:
    """What a member says whose service has raised."""
    errors = ServiceErrorsStatus(count=3, newest="<Tally>: ValueError('no')", log_position=log_position, age_s=age_s)
    return {"service_errors": errors}


def test_an_exception_of_the_service_is_told_once_for_a_minute() -> None:
    """Issue 44 §2. Every member has run the same entry, and answers go on."""

    def judged(*changes: dict[str, Any]) -> list[Problem]:
        statuses = {
            member_id: member_status(member_id, state="FOLLOWER" if member_id else "LEADER", leader=0).model_copy(
                update=changed
            )
            for member_id, changed in enumerate(changes)
        }
        return judge_cluster(ClusterView(statuses=statuses, leader=statuses[0], has_quorum=True, verdict=""), LIMITS)

    (problem,) = judged(raising(59.0, 640), raising(12.0, 960), {})

    assert (problem.kind, problem.member_id) == (ProblemKind.SERVICE_RAISES, None)
    assert has_facts(problem.detail, "12 s", "log_position=960", "3 times", "<Tally>: ValueError('no')")
    assert judged(raising(60.0, 640), {}, {}) == []


OLD_CODE, NEW_CODE = "5c1f93ab0e7d2246", "0b77e2d9c43a1f58"


def view_with_two_codes(*uptimes_s: float) -> ClusterView:
    """Member 0 leads with old code, member 1 has new code, and member 3 names none; each has run for so long."""
    codes = (OLD_CODE, NEW_CODE, OLD_CODE, None)
    statuses = {
        member_id: member_status(member_id, state="FOLLOWER" if member_id else "LEADER", leader=0).model_copy(
            update={"code": code, "uptime_s": uptime_s}
        )
        for member_id, (code, uptime_s) in enumerate(zip(codes, uptimes_s, strict=True))
    }
    return ClusterView(statuses=statuses, leader=statuses[0], has_quorum=True, verdict="leader 0")


def test_members_with_different_code_are_healthy_while_an_upgrade_is_in_progress() -> None:
    """No wait for health between two hosts could ever succeed."""
    view = view_with_two_codes(1e6, 3_600.0, 1e6, 1e6)

    assert judge_cluster(view, LIMITS) == []
    assert describe_upgrade(view, LIMITS) == (
        f"upgrade in progress: members 0, 2 with code {OLD_CODE}, member 1 with code {NEW_CODE}"
    )


def test_an_upgrade_that_stopped_halfway_is_a_problem_of_each_member_with_other_code_than_the_leader() -> None:
    view = view_with_two_codes(1e6, 3_600.1, 1e6, 1e6)

    problems = judge_cluster(view, LIMITS)

    assert describe_upgrade(view, LIMITS) is None
    assert [(problem.kind.value, problem.member_id, problem.detail) for problem in problems] == [
        ("code_differs", 1, f"it runs code {NEW_CODE}, and the leader, member 0, runs {OLD_CODE}")
    ]


def test_equal_code_is_no_upgrade() -> None:
    leader = member_status(0, state="LEADER", leader=0).model_copy(update={"code": OLD_CODE})
    view = ClusterView(statuses={0: leader, 1: "refused"}, leader=leader, has_quorum=True, verdict="leader 0")

    assert describe_upgrade(view, LIMITS) is None

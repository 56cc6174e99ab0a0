"""What is wrong with a cluster or a member: decided here, from what members say about themselves.

`trimaran health` judges the statuses of all members. `/readyz` judges one member by its own status. Both ask the same
two tables, so that a problem has one definition, one text and one advice:

    MEMBER_RULES     what one status shows by itself: a disk that is nearly full, a service that stands still
    CLUSTER_RULES    what only a comparison shows: no leader, a follower that lags, a member that does not answer

A new problem is a `ProblemKind`, a function that finds it, and a row of one table. A function gets values only: it
reads no clock, so what takes time to see (a position that stands still) is a duration in the status, which the member
itself measures. A field of the status that an older member does not have is its default, which is never a problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from ...service_api.documents.member_status import MemberStatus, is_in_term
from ...service_api.tls.watch import EXPIRY_NOTICE
from ..core.vocabulary.held_entry import DIFFERENCE_ADVICE, HELD_ADVICE
from ..core.vocabulary.members import quorum_threshold
from ..settings.health_limits import HealthLimits


class ProblemKind(StrEnum):
    """What can be wrong, to count and filter by."""

    NO_LEADER = "no_leader"
    """No member leads."""
    VOTES_LOST = "votes_lost"
    """No member leads and none can: too few members have a log and their votes, and the others forgot theirs."""
    NO_QUORUM = "no_quorum"
    """There is a leader, but no majority in its term: nothing commits."""
    OTHER_CLUSTER = "other_cluster"
    """A member belongs to another cluster than the leader, or than the other members."""
    NO_ANSWER = "no_answer"
    """A member did not give its status."""
    NOT_IN_TERM = "not_in_term"
    """A member answers, but is in an election or in another term than the leader."""
    NO_VOTE = "no_vote"
    """A member came with an empty directory, and is not counted yet: nothing commits by it, and it elects nobody."""
    BEHIND = "behind"
    """A member's durable log, or what its service was given, is further behind the leader's than allowed."""
    CLOCK_OFF = "clock_off"
    """A member's clock is far from the majority's, or from another's where no majority says which is off."""
    DIFFERS = "differs"
    """A member does not hear another one, because their settings differ."""
    CODE_DIFFERS = "code_differs"
    """A member runs other code of its services than the leader, and no upgrade is in progress."""
    STATES_DIFFER = "states_differ"
    """A field of a service's state differs between members whose code differs."""
    DIVERGED = "diverged"
    """Services of members came to different states or outputs from one log, and no majority agrees."""
    MEMBER_DIVERGED = "member_diverged"
    """The same, and a majority agrees: the others are wrong."""
    QUERY_CHANGES_STATE = "query_changes_state"
    """A query has changed the state of a service, on one member alone."""
    DELIVERY_STALLED = "delivery_stalled"
    """A service is given nothing although more is committed."""
    REPLAY_STALLED = "replay_stalled"
    """A member in an election replays or copies a log, and gets no further."""
    LOG_DIFFERS = "log_differs"
    """Members' logs differ in a range, and nobody can say whose is valid: a member stands before it."""
    SERVICE_HELD = "service_held"
    """A member stands still before an entry of the log at which its service fails each time."""
    SERVICE_RAISES = "service_raises"
    """A callback of a service has raised an exception within the last minute, on every member."""
    NO_SNAPSHOTS_POSSIBLE = "no_snapshots_possible"
    """A service cannot write its state, and there is much log: each start replays all of it, and none is removed."""
    NO_SNAPSHOT = "no_snapshot"
    """The newest snapshot is old, and there is much log after it: a start takes long, and the disk fills."""
    DAMAGED = "damaged"
    """A member could not read a part of its archive."""
    COLD_STORAGE_FAILS = "cold_storage_fails"
    """A member cannot put its old log into the object store, so its disk fills."""
    SYNC_SLOW = "sync_slow"
    """The disk of a member takes long to make its log durable."""
    DISK_FULL = "disk_full"
    """The disk of a member's directory is nearly full."""
    DISK_FILLS = "disk_fills"
    """The disk of a member's directory is full soon, if it fills on as in the last minutes."""
    DESCRIPTORS_SCARCE = "descriptors_scarce"
    """A member has nearly as many client connections, or files open, as it may."""
    CERTIFICATE_EXPIRES = "certificate_expires"
    """A certificate that a member works with expires within 14 days, or has expired."""


class Problem(BaseModel):
    """One thing that is wrong."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: ProblemKind
    member_id: int | None
    """The member it is about; None for the cluster."""
    detail: str
    advice: str
    """What to do, or what to look at first."""


_SCARCE_PERCENT: Final = 90
_COLD_FAILURE_S: Final = 60
_RAISED_S: Final = 60
"""For so long an exception of a service is told: it is answered, and the service goes on."""
_SECONDS_PER_DAY: Final = 86_400
_SLOW_SYNC_COUNT: Final = 5
"""Slow syncs in a minute from which on a disk is slow, if they are one in a hundred of all."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ClusterView:
    """What was heard of every member at one time."""

    statuses: Mapping[int, MemberStatus | str]
    """By member id, in the order of the configuration; what happened instead, where a member did not answer."""
    leader: MemberStatus | None
    """The leader of the highest term."""
    voter_ids: frozenset[int] = frozenset()
    """The members that have a vote by the configuration, witnesses included."""
    strangers: frozenset[int] = frozenset()
    """Of those that did not answer: members of another cluster than the one that was asked for."""
    has_quorum: bool
    """Whether there is a leader, and a majority answered in its term."""
    verdict: str
    """The state of the cluster as one line."""

    @property
    def barred(self) -> list[MemberStatus]:
        """The voters that answer and say that they have lost their votes, where too few others are left to elect."""
        barred = [status for status in self.answered if status.barred and status.member_id in self.voter_ids]
        is_lost = len(self.voter_ids) - len(barred) < quorum_threshold(len(self.voter_ids))
        return barred if is_lost and self.leader is None else []

    @property
    def answered(self) -> list[MemberStatus]:
        """The statuses that were given."""
        return [status for status in self.statuses.values() if isinstance(status, MemberStatus)]

    def is_in_term(self, status: MemberStatus) -> bool:
        """Whether a member leads or follows in the leader's term; false without a leader."""
        leader = self.leader
        return leader is not None and (status.leader_member_id, status.leadership_term_id) == (
            leader.member_id,
            leader.leadership_term_id,
        )


@dataclass(slots=True, frozen=True)
class MemberRule:
    """A problem that one status shows by itself."""

    kind: ProblemKind
    find: Callable[[MemberStatus, HealthLimits], Iterable[str]]
    """Gives a detail for each case."""
    advice: str
    is_ready: bool = False
    """Whether `/readyz` answers 200 all the same."""


@dataclass(slots=True, frozen=True)
class ClusterRule:
    """A problem that a comparison of members shows."""

    kind: ProblemKind
    find: Callable[[ClusterView, HealthLimits], Iterable[tuple[int | None, str]]]
    """Gives a member, or None for the cluster, and a detail for each case."""
    advice: str


def judge_member(status: MemberStatus, limits: HealthLimits) -> list[Problem]:
    """Find what one status shows by itself, in the order of `MEMBER_RULES`."""
    return [
        Problem(kind=rule.kind, member_id=status.member_id, detail=detail, advice=rule.advice)
        for rule in MEMBER_RULES
        for detail in rule.find(status, limits)
    ]


def judge_cluster(view: ClusterView, limits: HealthLimits) -> list[Problem]:
    """Find everything that is wrong: what concerns the cluster first, then member by member."""
    problems = [
        Problem(kind=rule.kind, member_id=member_id, detail=detail, advice=rule.advice)
        for rule in CLUSTER_RULES
        for member_id, detail in rule.find(view, limits)
    ]
    for status in view.answered:
        problems += judge_member(status, limits)
    order = {member_id: index for index, member_id in enumerate(view.statuses)}
    return sorted(problems, key=lambda problem: -1 if problem.member_id is None else order[problem.member_id])


def why_not_ready(status: MemberStatus, limits: HealthLimits) -> str | None:
    """Say in one line why a member that takes part in a term is not ready all the same; None if it is."""
    for rule in MEMBER_RULES:
        if not rule.is_ready:
            for detail in rule.find(status, limits):
                return f"{rule.kind.value}: {detail}; {rule.advice}"
    return None


def describe_upgrade(view: ClusterView, limits: HealthLimits) -> str | None:
    """Say in one line which members run which code while members are given other code one at a time; None otherwise.

    Different code alone is no problem: each step of an upgrade has it. It becomes one if the upgrade stops halfway, so
    if no member has started for `max_upgrade_ms`.
    """
    members: dict[str, list[int]] = {}
    for status in view.answered:
        if status.code is not None:
            members.setdefault(status.code, []).append(status.member_id)
    if len(members) < 2 or min(status.uptime_s for status in view.answered) * 1_000 > limits.max_upgrade_ms:
        return None
    return "upgrade in progress: " + ", ".join(
        f"{'member' if len(ids) == 1 else 'members'} {', '.join(map(str, sorted(ids)))} with code {code}"
        for code, ids in sorted(members.items(), key=lambda item: min(item[1]))
    )


# What only a comparison shows


def _find_no_leader(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    if view.answered and view.leader is None and not view.barred:
        yield None, view.verdict


def _find_votes_lost(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    barred, voter_count = view.barred, len(view.voter_ids)
    if barred:
        named = ", ".join(str(status.member_id) for status in barred)
        left_count = voter_count - len(barred)
        yield (
            None,
            f"members that have lost their directories: {named}; {left_count} of {voter_count} voters left, expected "
            f"at least {quorum_threshold(voter_count)} to elect a leader",
        )


def _find_no_quorum(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    if view.leader is not None and not view.has_quorum:
        yield None, view.verdict


def _find_no_answer(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    for member_id, status in view.statuses.items():
        if isinstance(status, str) and member_id not in view.strangers:
            yield member_id, status


def _find_other_cluster(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    """A member that does not know its cluster yet goes with any."""
    for member_id in view.strangers:
        yield member_id, str(view.statuses[member_id])
    known = [status for status in view.answered if status.cluster_id is not None]
    if not known:
        return
    counts = Counter(status.cluster_id for status in known)
    leader_id = None if view.leader is None else view.leader.cluster_id
    expected = leader_id or counts.most_common(1)[0][0]
    for status in known:
        if status.cluster_id != expected:
            yield status.member_id, f"it belongs to cluster {status.cluster_id}, the others to {expected}"


def _find_not_in_term(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    if view.leader is None:
        return  # that is the cluster's problem, and not one of each member
    unheard = {standby.member_id for standby in view.leader.standbys if not standby.takes_part}
    for status in view.answered:
        if status.member_id in unheard and view.is_in_term(status):
            yield status.member_id, f"{status.state}, and the leader has not heard from it in this term yet"
        elif not view.is_in_term(status):
            term = "no term" if status.leadership_term_id is None else f"term {status.leadership_term_id}"
            election, reason = status.last_election, ""
            if election is not None and election.duration_s is None:
                reason = f": {election.reason}"
                if election.refusal is not None and status.barred is None:  # which a rule of its own tells
                    reason += f"; {election.refusal}"
            yield status.member_id, f"{status.state} in {term}{reason}"


def _find_behind(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    """Compare with the leader; a follower that answered a moment after its leader may seem to be ahead."""
    for status in view.answered:
        if view.leader is None or not view.is_in_term(status):
            continue
        lag_bytes = view.leader.append_position - status.append_position
        if lag_bytes > limits.max_lag_bytes:
            yield status.member_id, f"its log is {lag_bytes:,} bytes behind the leader's"
        if status.stands_still:
            continue  # a rule of its own says why nothing is delivered
        undelivered_bytes = status.commit_position - status.delivered_position
        if undelivered_bytes > limits.max_lag_bytes:
            yield status.member_id, f"its service is {undelivered_bytes:,} bytes behind what is committed"


def _find_code_differs(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    if view.leader is None or describe_upgrade(view, limits) is not None:
        return
    for status in view.answered:
        if None not in (status.code, view.leader.code) and status.code != view.leader.code:
            leader = f"the leader, member {view.leader.member_id}, runs {view.leader.code}"
            yield status.member_id, f"it runs code {status.code}, and {leader}"


def _find_service_raises(view: ClusterView, limits: HealthLimits) -> Iterator[tuple[int | None, str]]:
    """Tell it once: every member has run the same entry."""
    found = [status.service_errors for status in view.answered if status.service_errors is not None]
    recent = [errors for errors in found if errors.age_s < _RAISED_S]
    newest = max(recent, key=lambda errors: errors.log_position, default=None)
    if newest is not None:
        yield (
            None,
            f"raised {newest.age_s:.0f} s ago at log_position={newest.log_position}, {newest.count:,} times in all: "
            f"{newest.newest}",
        )


CLUSTER_RULES: Final = (
    ClusterRule(
        ProblemKind.NO_LEADER,
        _find_no_leader,
        "start the members that do not answer; `trimaran errors DIR` on their machines says why they ended; where all "
        "answer, `trimaran status` says what the election of each one waits for",
    ),
    ClusterRule(
        ProblemKind.VOTES_LOST,
        _find_votes_lost,
        "start one of these on its old directory, if that can be had again; otherwise stop all members and make a "
        "cluster of what is left: `trimaran recover plan` with every directory",
    ),
    ClusterRule(
        ProblemKind.NO_QUORUM,
        _find_no_quorum,
        "bring back members until a majority is in the leader's term: nothing commits before that",
    ),
    ClusterRule(
        ProblemKind.NO_ANSWER,
        _find_no_answer,
        "start it, or see with `trimaran errors DIR` on its machine why it ended; if another member answers at its "
        "address, correct `members`",
    ),
    ClusterRule(
        ProblemKind.OTHER_CLUSTER,
        _find_other_cluster,
        "correct `members` if an endpoint of another cluster is in it; if this member lost its directory and began a "
        "cluster of its own, `trimaran errors` of another one has the command to bring it back",
    ),
    ClusterRule(
        ProblemKind.NOT_IN_TERM,
        _find_not_in_term,
        "wait while it catches up; if it does not join, see its log for the reason of its last election",
    ),
    ClusterRule(
        ProblemKind.BEHIND,
        _find_behind,
        "look at its disk and its network (trimaran_sync_duration_seconds), and at slow callbacks of its service",
    ),
    ClusterRule(
        ProblemKind.SERVICE_RAISES,
        _find_service_raises,
        "see `trimaran errors DIR --traces` of any member for the line, and `trimaran archive grep DIR --log` for the "
        "entry; the client got the error, and the service went on",
    ),
    ClusterRule(
        ProblemKind.CODE_DIFFERS,
        _find_code_differs,
        "finish the upgrade, or start it with the leader's code; see docs/upgrading.md",
    ),
)


# What one status shows by itself


def _find_no_vote(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    if is_in_term(status) and not status.has_vote:
        yield "it has forgotten its votes, or has never voted, so it is not counted yet"
    elif status.barred is not None:
        yield status.barred


def _find_differs(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    for other in status.differing_members:
        yield f"does not hear member {other.member_id}: {other.detail}"


def _find_clock_off(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    if status.clock is not None and status.clock.problem is not None:
        yield status.clock.problem


def _find_diverged(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    for divergence in status.divergences:
        if not divergence.has_majority:
            yield f"no majority agrees: {divergence.detail}"
    if status.message_divergence_count:
        yield f"its service offered other messages than the log holds: count={status.message_divergence_count}"


def _find_diverged_others(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    for divergence in status.divergences:
        if divergence.has_majority:
            members = ", ".join(map(str, divergence.member_ids))
            yield f"members that differ from a majority: {members}: {divergence.detail}"


def _find_states_differ(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    for difference in status.state_differences:
        yield difference.detail


def _find_query_changes_state(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    if status.query_change is not None:
        yield status.query_change


def _find_delivery_stalled(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    if is_in_term(status) and _is_stalled(status, limits):
        during = " while it takes a snapshot" if status.module_state == "SNAPSHOT" else ""
        yield (
            f"nothing was delivered for {status.stalled_s:.0f} s{during}: delivered={status.delivered_position} "
            f"commit={status.commit_position}"
        )


def _find_replay_stalled(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    if not is_in_term(status) and _is_stalled(status, limits):
        yield (
            f"{status.state} without progress for {status.stalled_s:.0f} s: delivered={status.delivered_position} "
            f"append={status.append_position}"
        )


def _is_stalled(status: MemberStatus, limits: HealthLimits) -> bool:
    if status.stands_still:
        return False  # a rule of its own says why
    return status.stalled_s is not None and status.stalled_s * 1_000 > limits.max_stall_ms


def _find_log_differs(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    found = status.log_difference
    if found is not None:
        groups = " against ".join(",".join(map(str, group)) for group in found.groups)
        yield (
            f"it stands before a range of the log that differs among members {groups}: position={found.position} "
            f"stop_position={found.stop_position} file={found.file}"
        )


def _find_service_held(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    held = status.held
    if held is not None:
        where = f"the entry that ends at log_position={held.log_position}"
        yield f"its service stands before {where}, where {held.callback} raised {held.failure}"


def _find_no_snapshot(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    """Both must be large: a busy cluster with a fresh snapshot is healthy, and so is a small log without one."""
    length_bytes, age_s = status.log_after_snapshot_bytes, status.log_after_snapshot_s
    if length_bytes <= limits.max_log_after_snapshot_bytes or age_s is None or status.snapshotless_services:
        return
    if age_s * 1_000 > limits.max_snapshot_age_ms:
        since = "the log began" if status.snapshot_position is None else "the newest snapshot"
        yield f"{length_bytes:,} bytes of log and {age_s / 3_600:,.1f} h since {since}"


def _find_no_snapshots_possible(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    length_bytes = status.log_after_snapshot_bytes
    if status.snapshotless_services and length_bytes > limits.max_log_after_snapshot_bytes:
        names = ", ".join(status.snapshotless_services)
        yield f"{length_bytes:,} bytes of log, and no on_take_snapshot in {names}"


def _find_damage(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    if not status.damaged_places:
        return
    place, more_count = status.damaged_places[0], status.damaged_place_count - 1
    what = "its log" if place.recording_id == status.log_recording_id else "a recording that is not its log"
    more = f", and {more_count} more places" if more_count > 0 else ""
    place_text = f"recording_id={place.recording_id} position={place.position} file={place.file}"
    lost = "" if place.lost is None else f"; no member can mend it: {place.lost}"
    yield f"cannot read {what}: {place_text}{more}{lost}"


def _find_cold_storage_fails(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    cold = status.cold_storage
    if cold is not None and cold.failing_s is not None and cold.failing_s >= _COLD_FAILURE_S:
        yield (
            f"old log has not gone to cold storage for {cold.failing_s:,.0f} s, and {cold.pending_bytes >> 20:,} MiB "
            f"wait on its disk: {cold.failure}"
        )


def _find_sync_slow(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    syncs = status.syncs
    if syncs is None or syncs.slow_count < max(_SLOW_SYNC_COUNT, syncs.count / 100):
        return
    yield (
        f"{syncs.slow_count:,} of {syncs.count:,} syncs took {syncs.slow_s:g} s or longer in the last minute: "
        f"p99={syncs.p99_s:.3f} s max={syncs.max_s:.3f} s"
    )


def describe_full_disk(free_bytes: int, size_bytes: int, limits: HealthLimits) -> str | None:
    """Say in one line that a disk is nearly full; None if it is not."""
    if 100 * free_bytes >= limits.min_disk_free_percent * size_bytes:
        return None
    percent, free_mib, size_mib = 100 * free_bytes / size_bytes, free_bytes >> 20, size_bytes >> 20
    return f"the disk of its directory has {free_mib:,} MiB left, {percent:.1f} % of {size_mib:,} MiB"


def _find_disk_full(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    free_bytes, size_bytes = status.disk_free_bytes, status.disk_size_bytes
    if free_bytes is not None and size_bytes:
        detail = describe_full_disk(free_bytes, size_bytes, limits)
        if detail is not None:
            yield detail


def _find_disk_fills(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    free_bytes, full_in_s = status.disk_free_bytes, status.disk_full_in_s
    if free_bytes is not None and full_in_s is not None and full_in_s * 1_000 < limits.min_disk_time_ms:
        rate_mib = free_bytes / max(full_in_s, 1) / (1 << 20)
        yield (
            f"the disk of its directory is full in {full_in_s / 60:,.0f} min at the rate of the last minutes, "
            f"{rate_mib:,.1f} MiB/s: {free_bytes >> 20:,} MiB are left"
        )


def _find_descriptors_scarce(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    for what, count, limit in (
        ("client connections", status.connection_count, status.connection_limit),
        ("files and connections open", status.descriptor_count, status.descriptor_limit),
    ):
        if count is not None and limit and 100 * count >= _SCARCE_PERCENT * limit:
            yield f"{count:,} {what} of {limit:,}"


def _find_certificate_expires(status: MemberStatus, limits: HealthLimits) -> Iterator[str]:
    found = status.certificate
    if found is None or found.expires_in_s > EXPIRY_NOTICE.total_seconds():
        return
    when = f"{datetime.fromtimestamp(found.expires_at_ms / 1_000, UTC):%Y-%m-%d %H:%M} UTC"
    if found.expires_in_s < 0:
        yield f"the certificate has expired: file={found.file} not_after={when}"
    else:
        days = found.expires_in_s / _SECONDS_PER_DAY
        yield f"the certificate expires in {days:.1f} days: file={found.file} not_after={when}"


MEMBER_RULES: Final = (
    MemberRule(
        ProblemKind.NO_VOTE,
        _find_no_vote,
        "wait until the other voters have committed an entry without it, which takes a majority of all: start those "
        "that are away, and empty no other directory meanwhile",
        is_ready=True,  # it serves its clients
    ),
    MemberRule(
        ProblemKind.DIFFERS,
        _find_differs,
        "make the settings equal on all members, and restart the member that was wrong; for one that lost its "
        "directory and began another cluster, `trimaran errors` has the command to bring it back",
        is_ready=True,  # it serves its clients; the other one does not
    ),
    MemberRule(
        ProblemKind.CLOCK_OFF,
        _find_clock_off,
        "correct its clock (`timedatectl`, `chronyc tracking`); until then it leaves elections to the other members",
        is_ready=True,  # it serves its clients
    ),
    MemberRule(
        ProblemKind.DIVERGED,
        _find_diverged,
        "run `trimaran replay DIR --service ... --verify-snapshots` on each member, and mend the service",
    ),
    MemberRule(
        ProblemKind.MEMBER_DIVERGED,
        _find_diverged_others,
        "see `trimaran errors DIR` of that member for the cause; when the service is mended, rename its directory and "
        "start it: the others fill it; keep the renamed directory until all is well",
        is_ready=True,  # it is one of the majority
    ),
    MemberRule(
        ProblemKind.STATES_DIFFER,
        _find_states_differ,
        "stop the upgrade, and start the members with new code with the old code again; let the new code do the same "
        "as the old until a feature level is raised; see docs/upgrading.md",
        is_ready=True,  # nobody can say which code is right, and the cluster serves
    ),
    MemberRule(
        ProblemKind.QUERY_CHANGES_STATE,
        _find_query_changes_state,
        "leave the state as it is in on_query, then restart this member",
        is_ready=True,
    ),
    MemberRule(
        ProblemKind.DELIVERY_STALLED,
        _find_delivery_stalled,
        "see `trimaran errors DIR` and the stalls in its log for the callback; restart it if it does not go on",
    ),
    MemberRule(
        ProblemKind.REPLAY_STALLED,
        _find_replay_stalled,
        "see `trimaran errors DIR` for the entry or file in its way, then restart this member",
    ),
    MemberRule(ProblemKind.LOG_DIFFERS, _find_log_differs, DIFFERENCE_ADVICE),
    MemberRule(ProblemKind.SERVICE_HELD, _find_service_held, HELD_ADVICE),
    MemberRule(
        ProblemKind.NO_SNAPSHOT,
        _find_no_snapshot,
        "see `trimaran errors DIR` for why none is taken by itself (snapshot_interval_ms, snapshot_log_bytes), and run "
        "`trimaran snapshot take`",
    ),
    MemberRule(
        ProblemKind.NO_SNAPSHOTS_POSSIBLE,
        _find_no_snapshots_possible,
        "write on_take_snapshot or snapshot_messages, and load in on_start what it wrote: the log is kept whole and "
        "replayed at each start",
        is_ready=True,  # it serves its clients, and no other member does better
    ),
    MemberRule(
        ProblemKind.DAMAGED,
        _find_damage,
        "it is mended from another member, see `trimaran scrub`; what no member can mend stays until a snapshot makes "
        "it superfluous: run `trimaran snapshot take`; replace a disk that does this again",
        is_ready=True,  # it serves its clients; who needs what is damaged gets it from another member
    ),
    MemberRule(
        ProblemKind.COLD_STORAGE_FAILS,
        _find_cold_storage_fails,
        "check the store at cold_storage_url, its credentials and the network: the member tries again each minute, and "
        "its disk fills meanwhile (docs/cold-storage.md)",
        is_ready=True,  # it serves its clients
    ),
    MemberRule(
        ProblemKind.SYNC_SLOW,
        _find_sync_slow,
        "see what else uses its disk (`iostat -x 1`), or replace the disk; each commit of a leader waits for its own "
        "disk: `trimaran leader transfer` if it leads and does not hand over by itself",
        is_ready=True,  # it serves its clients, slowly; where a majority is faster, a leader hands over by itself
    ),
    MemberRule(
        ProblemKind.DISK_FULL,
        _find_disk_full,
        "free space, or let it remove old log after snapshots (keep_all, keep_log_bytes): a member whose "
        "disk is full stops",
    ),
    MemberRule(
        ProblemKind.DISK_FILLS,
        _find_disk_fills,
        "see what grows (`du -x`): log that it does not remove (keep_all, keep_log_bytes, no newer snapshot: `trimaran "
        "snapshot take`), or another program on that disk; a member whose disk is full stops",
        is_ready=True,  # there is room yet
    ),
    MemberRule(
        ProblemKind.DESCRIPTORS_SCARCE,
        _find_descriptors_scarce,
        "find who holds them (`ss -tn`, connection.refused in its log), or raise connection_limit and the limit of "
        "open files (`ulimit -n`)",
        is_ready=True,  # it serves those whom it has, and members and operators have descriptors of their own
    ),
    MemberRule(
        ProblemKind.CERTIFICATE_EXPIRES,
        _find_certificate_expires,
        "have a new one issued, and put it in the place of the file: the member reads it within a second, and no link "
        "is lost (docs/security.md)",
        is_ready=True,  # what is connected stays, and before it expires everything works
    ),
)

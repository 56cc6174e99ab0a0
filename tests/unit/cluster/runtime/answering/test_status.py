"""What a member says about itself, from before its first election on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.tls import Issuer
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.snapshots.test_standby_snapshots import deliver, follower, offer
from tests.unit.cluster.core.solo import Solo
from trimaran.archive.disk.file_system import DiskSpace
from trimaran.archive.store.damage import DamagedPlace
from trimaran.archive.store.scrub import ScrubProgress
from trimaran.cluster.core.events import LogImageClosed
from trimaran.cluster.runtime.answering.progress_tracker import ProgressTracker
from trimaran.cluster.runtime.answering.status import describe_status, encode_status
from trimaran.cluster.runtime.answering.vitals import EffectCounts, Vitals
from trimaran.cluster.runtime.files.error_log import ErrorLog, ErrorObservation
from trimaran.cluster.runtime.repair.mender import RepairCounts
from trimaran.cluster.runtime.repair.upkeep import Upkeep
from trimaran.cluster.runtime.snapshots.snapshot_shipping import FetchProgress, SnapshotFetcher
from trimaran.cluster.runtime.watching.recent_syncs import RecentSyncs
from trimaran.cluster.runtime.watching.snapshot_counts import SnapshotCounts
from trimaran.cluster.runtime.watching.stall_tracker import StallTracker
from trimaran.cluster.service.failure_log import FailureLog
from trimaran.service_api.documents.document import read_document
from trimaran.service_api.documents.member_status import (
    STATUS_LENGTH_LIMIT_BYTES,
    DifferingMember,
    ElectionStatus,
    MemberStatus,
    ServiceErrorsStatus,
    SyncStatus,
)
from trimaran.service_api.net.connection_gate import ConnectionGate, GateLimits
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.tls.certificates import Certificate, read_certificates
from trimaran.service_api.types import MemberId


@dataclasses.dataclass(slots=True)
class SoloClock:
    """The clock of a member on its own, for whoever asks it."""

    solo: Solo

    def monotonic_ns(self) -> int:
        return self.solo.now_ns

    def epoch_time(self) -> int:
        return self.solo.timestamp


class NoArea:
    """A disk with no room for errors."""

    def read_error_area(self) -> bytes:
        return b""

    def write_error_area(self, data: bytes, offset: int) -> None:
        raise OSError("no room")


def upkeep_with(damaged: Sequence[DamagedPlace]) -> Upkeep:
    """A scrub that has found these places, and a repairer that knows that the first one is lost."""
    lost = {(place.recording_id, place.position): "nobody has it" for place in damaged[:1]}
    found = SimpleNamespace(
        damage=SimpleNamespace(places=damaged),
        progress=ScrubProgress(position=32, read_bytes=64, pass_count=2, found_count=len(damaged)),
        counts=RepairCounts(mended_count=3, mended_bytes=96, lost=lost),
        lost=lambda place: lost.get((place.recording_id, place.position)),
    )
    return cast(Upkeep, found)


def vitals_of(
    solo: Solo,
    fetch: FetchProgress | None = None,
    differing: dict[MemberId, str] | None = None,
    space: DiskSpace | None = None,
    damaged: Sequence[DamagedPlace] = (),
    certificate: Certificate | None = None,
    recent_syncs: RecentSyncs | None = None,
    failures: FailureLog | None = None,
) -> Vitals:
    """What is around a consensus module on its own, as far as its status shows it."""
    clock = SoloClock(solo)
    host = SimpleNamespace(clock=clock, pid=4711, network=SimpleNamespace(expires=certificate))
    adapter, fetcher = SimpleNamespace(position=64), cast(SnapshotFetcher, SimpleNamespace(progress=fetch))
    rooms: dict[str, Any] = {
        "ground": SimpleNamespace(
            host=host,
            started_ns=solo.now_ns,
            gate=ConnectionGate({Purpose.INGRESS: GateLimits.of_count(7)}),
            stalls=StallTracker(clock.monotonic_ns, threshold_ns=100 * MS),
        ),
        "links": SimpleNamespace(
            ingress=SimpleNamespace(connections=range(5), traffic=SimpleNamespace(find_total=lambda: 12.5)),
            members=SimpleNamespace(differences=differing or {}),
        ),
        "files": SimpleNamespace(
            archive=SimpleNamespace(cold_standing=None),
            member=SimpleNamespace(
                errors=ErrorLog(NoArea(), clock.epoch_time),
                timed_disk=SimpleNamespace(recent=recent_syncs or RecentSyncs(100 * MS)),
            ),
        ),
        "container": SimpleNamespace(
            adapter=adapter,
            agent=SimpleNamespace(query_check=None, failures=failures or FailureLog(clock.monotonic_ns), error_count=1),
            snapshotless_services=[],
        ),
        "snapshots": SimpleNamespace(fetcher=fetcher),
        "repair": SimpleNamespace(upkeep=upkeep_with(damaged)),
        "turns": None,
        "disk_space": SimpleNamespace(newest=space, full_in_s=None),
    }
    return Vitals(
        module=solo.module,
        progress=ProgressTracker(solo.module, delivered=adapter, fetcher=fetcher, clock=clock),
        counts=EffectCounts(SnapshotCounts()),
        start_position=0,
        **rooms,
    )


def asked(vitals: Vitals) -> MemberStatus:
    """What arrives where it was asked."""
    document = encode_status(vitals)
    assert len(document) < STATUS_LENGTH_LIMIT_BYTES // 4
    return read_document(MemberStatus, document)


def test_a_member_says_how_much_room_its_disk_has_once_it_knows() -> None:
    unknown, known = (asked(vitals_of(Solo(), space=space)) for space in (None, DiskSpace(30, 200)))

    assert (unknown.disk_free_bytes, unknown.disk_size_bytes) == (None, None)
    assert (known.disk_free_bytes, known.disk_size_bytes) == (30, 200)


def test_a_member_says_how_long_its_syncs_take_once_there_are_some() -> None:
    solo, recent = Solo(), RecentSyncs(100 * MS)
    recent.end(7, Path("0-0.rec"), solo.now_ns - 205 * MS, 205 * MS)

    told = asked(vitals_of(solo, recent_syncs=recent)).syncs

    assert told == SyncStatus(count=1, slow_count=1, slow_s=0.1, p99_s=0.205, max_s=0.205)
    assert asked(vitals_of(Solo())).syncs is None


def test_a_member_says_what_its_service_has_raised_since_it_started() -> None:
    """An entry that was there when the process began has been answered long ago."""
    solo = Solo()
    failures = FailureLog(lambda: solo.now_ns)
    vitals = vitals_of(solo, failures=failures)
    vitals.start_position = 640

    failures.note(ValueError("old"), service="Tally", log_position=640)
    replayed = asked(vitals).service_errors
    failures.note(ValueError("no"), service="Tally", log_position=960)
    solo.now_ns += 1_500 * MS

    assert replayed is None
    assert asked(vitals).service_errors == ServiceErrorsStatus(
        count=1, newest="'Tally': ValueError('no')", log_position=960, age_s=1.5
    )


def test_a_member_says_where_its_archive_cannot_be_read_the_first_few_places_of_many() -> None:
    """Issue 20 §4: damage that somebody has met is seen from outside, and the answer stays short."""
    places = [DamagedPlace(0, 32 * i, "0-0.rec", "recorded frame is not valid: " + "x" * 500) for i in range(64)]

    told = asked(vitals_of(Solo(), damaged=places))

    assert told.damaged_place_count == 64
    assert [place.lost for place in told.damaged_places][:2] == ["nobody has it", None]
    assert told.scrub is not None
    assert (told.scrub.pass_count, told.scrub.found_count, told.scrub.mended_count) == (2, 64, 3)
    assert [(place.recording_id, place.position, place.file) for place in told.damaged_places][:2] == [
        (0, 0, "0-0.rec"),
        (0, 32, "0-0.rec"),
    ]


def test_a_member_that_gets_a_snapshot_says_how_far_it_has_come() -> None:
    progress = FetchProgress(leader_member_id=MemberId(1), log_position=4096, copied_bytes=30, length_bytes=200)

    told = asked(vitals_of(Solo(), progress)).snapshot_fetch

    assert told is not None
    assert (told.leader_member_id, told.log_position, told.copied_bytes, told.length_bytes) == (1, 4096, 30, 200)
    assert asked(vitals_of(Solo())).snapshot_fetch is None


def test_a_member_says_what_each_standby_has_offered_it_and_how_old_that_is() -> None:
    solo = follower()
    deliver(solo, 320)
    solo.feed(offer(320))

    told = asked(vitals_of(solo)).standbys

    assert [(one.member_id, one.snapshot_position, one.is_copying) for one in told] == [
        (3, 320, True),
        (4, None, False),
    ]
    assert told[0].snapshot_age_s == (solo.timestamp - 9) / 1000
    assert asked(vitals_of(Solo())).standbys == []


def test_a_member_says_whom_it_does_not_hear() -> None:
    told = asked(vitals_of(Solo(), differing={MemberId(2): "service_count=1 here, 2 at member 2"}))

    assert told.differing_members == [DifferingMember(member_id=2, detail="service_count=1 here, 2 at member 2")]
    assert asked(vitals_of(Solo())).differing_members == []


def test_a_member_that_lost_its_directory_says_why_it_does_not_vote() -> None:
    """Only where it knows of a log that it may have forgotten: the members of a new cluster vote."""
    fresh, emptied = Solo(), Solo()
    emptied.feed(emptied.canvass(1, 0, 640))

    assert asked(vitals_of(fresh)).barred is None
    told = asked(vitals_of(emptied))
    assert (told.has_vote, told.barred is not None) == (False, True)
    assert told.last_election is not None
    assert told.last_election.refusal == told.barred


def test_a_node_that_is_not_started_yet_says_so() -> None:
    """It listens before its first election begins, and longer if its service takes long to start."""
    status = asked(vitals_of(Solo(is_started=False)))

    assert (status.state, status.role, status.last_election) == ("STARTING", "FOLLOWER", None)
    assert (status.leader_member_id, status.leadership_term_id) == (None, None)
    assert (status.append_position, status.commit_position) == (0, 0)


def test_stalls_and_errors_are_counted_since_the_process_began() -> None:
    vitals = vitals_of(Solo(is_started=False))
    vitals.ground.stalls.on_span("gc2", 0, 250 * MS)
    vitals.ground.stalls.on_span("loop", 300 * MS, 350 * MS)
    vitals.files.member.errors.observe(ErrorObservation("warning", "a.b", "", "here", ""))

    status = asked(vitals)

    assert (status.stall_count, status.stall_max_s, status.error_count) == (1, 0.25, 1)


def test_a_member_in_an_election_names_its_state_and_why_it_elects() -> None:
    solo = Solo(terms=[(4, 0, 4096)], is_started=False)
    vitals = vitals_of(solo)
    solo.start()
    solo.now_ns += 1_500 * MS

    status = asked(vitals)

    assert (status.member_id, status.state, status.role) == (0, "CANVASS", "FOLLOWER")
    assert (status.leader_member_id, status.leadership_term_id) == (None, 4)
    assert (status.append_position, status.commit_position, status.delivered_position) == (4096, 0, 64)
    assert (status.pid, status.connection_count, status.session_count) == (4711, 5, 0)
    assert status.uptime_s == 1.5
    assert status.last_election == ElectionStatus(
        reason="node started", reason_kind="node_started", age_s=1.5, duration_s=None, leadership_term_id=None
    )


def test_a_leader_says_which_term_it_leads_and_when_it_was_elected() -> None:
    solo = Solo(terms=[(4, 0, 4096)]).lead()
    vitals = vitals_of(solo)
    solo.now_ns += 250 * MS

    status = asked(vitals)

    assert (status.state, status.role, status.leader_member_id) == ("LEADER", "LEADER", 0)
    assert status.leadership_term_id == solo.ctx.leadership_term_id > 4
    assert status.last_election is not None
    assert status.last_election.age_s == 0.25
    assert status.last_election.duration_s is not None
    assert status.last_election.leadership_term_id == status.leadership_term_id


def test_a_follower_says_whom_it_follows() -> None:
    status = asked(vitals_of(Solo(terms=[(4, 0, 4096)]).follow(2, 7)))

    assert (status.state, status.role, status.leader_member_id, status.leadership_term_id) == (
        "FOLLOWER",
        "FOLLOWER",
        2,
        7,
    )


def test_a_reason_with_other_peoples_text_in_it_is_one_printable_line() -> None:
    """The reason of a closed link holds what the operating system or a peer said."""
    solo = Solo(terms=[(4, 0, 4096)]).follow(2, 7)
    solo.feed(LogImageClosed(solo.ctx.log_session_id, "line one\nline \x1b[2J two" + "x" * 1_000))

    election = asked(vitals_of(solo)).last_election

    assert election is not None
    assert " one line ?[2J twoxxx" in election.reason
    assert len(election.reason) == 200
    assert election.reason_kind == "log_link_closed"


def test_asking_changes_nothing() -> None:
    """The document is made when it is asked for: no effect, no deadline comes of it."""
    solo = Solo(terms=[(4, 0, 4096)]).lead()
    deadline_ns = solo.module.next_deadline_ns()

    encode_status(vitals_of(solo))

    assert solo.take() == []
    assert solo.module.next_deadline_ns() == deadline_ns


def test_status_names_the_certificate_that_expires_first(tmp_path: Path) -> None:
    (certificate,) = read_certificates(Path(Issuer.create(tmp_path).member(0).certificate), "certificate")

    found = describe_status(vitals_of(Solo(), certificate=certificate)).certificate

    assert found is not None
    assert (found.file, found.subject) == (str(tmp_path / "member-0.pem"), "CN=member-0")
    assert found.expires_at_ms == certificate.expires_at_ms
    assert describe_status(vitals_of(Solo())).certificate is None

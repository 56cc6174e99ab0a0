"""The past of a backup that stays: every point in time that is kept can be restored, and no snapshot stays for nothing.

The decision by itself, then a directory and a store after it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.simulation.backup_plants import PLANTS
from tests.simulation.plant import planted
from tests.unit.cluster.core.log.test_retention import log_with
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.operating.backup.test_pruning import NOW_MS, ColdMember, prune_all, ship
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.stored.backup_files import find_backup
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import BackupContents
from trimaran.cluster.cli.app import build_app, exit_status_of
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.operating.backup import retention
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.restoring import restore_backup
from trimaran.cluster.operating.backup.retention import DAY_MS, BackupRetention, KeptPast, choose_kept
from trimaran.cluster.operating.backup.shortening import shorten, shorten_directory
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api import ConfigurationError
from trimaran.service_api.cluster_id import ClusterId

DAY = DAY_MS


def kept_of(
    log: RecordingLog, wanted: BackupRetention, *, start: int = 0, ticks_per_ms: int = 1
) -> tuple[list[int], int]:
    """The snapshots that stay, and where the log begins."""
    kept = choose_kept(log, wanted, log_start_position=start, ticks_per_ms=ticks_per_ms)
    return [found[0].log_position for found in log.complete_snapshots(1) if kept.has(found[0])], kept.log_start_position


def test_everything_stays_unless_somebody_asked_for_less() -> None:
    assert kept_of(log_with((100, 1), (200, 2)), retention.KEEP_EVERYTHING) == ([100, 200], 0)


def test_a_number_of_snapshots_removes_snapshots_and_no_log() -> None:
    log = log_with((100, 1), (200, 2), (300, 3))

    assert kept_of(log, BackupRetention(keep_snapshots=1)) == ([300], 0)
    assert kept_of(log, BackupRetention(keep_snapshots=2)) == ([200, 300], 0)


def test_the_snapshot_that_the_log_begins_with_stays() -> None:
    log = log_with((100, 1), (200, 2), (300, 3))

    assert kept_of(log, BackupRetention(keep_snapshots=1), start=64) == ([100, 300], 64)


def test_the_log_begins_with_the_newest_snapshot_that_is_old_enough() -> None:
    log = log_with((100, 0), (200, 3 * DAY), (300, 5 * DAY), (400, 12 * DAY))

    assert kept_of(log, BackupRetention(keep_ms=7 * DAY)) == ([300, 400], 300)
    assert kept_of(log, BackupRetention(keep_ms=7 * DAY + 1)) == ([200, 300, 400], 200)
    assert kept_of(log, BackupRetention(keep_ms=13 * DAY)) == ([100, 200, 300, 400], 0)


def test_the_state_that_a_log_was_seeded_with_stays() -> None:
    log = log_with((0, 0), (100, 1), (200, 2), (300, 30 * DAY))

    assert kept_of(log, BackupRetention(keep_ms=DAY, keep_snapshots=1)) == ([0, 200, 300], 200)


def test_times_are_in_the_unit_of_the_log() -> None:
    log = log_with((100, 0), (200, 3 * DAY * 1_000_000), (300, 9 * DAY * 1_000_000))

    assert kept_of(log, BackupRetention(keep_ms=5 * DAY), ticks_per_ms=1_000_000) == ([200, 300], 200)


def test_with_few_snapshots_the_days_still_move_on() -> None:
    """Of four snapshots a day two stay, and those that the log will begin with: a day more than asked for at most."""
    wanted, taken, start = BackupRetention(keep_snapshots=2, keep_ms=30 * DAY), list[tuple[int, int]](), 0
    for number in range(4 * 40):
        taken.append((32 * (number + 1), number * DAY // 4))
        positions, start = kept_of(log_with(*taken), wanted, start=start)
        taken = [found for found in taken if found[0] in positions]

    first, last = taken[0][1], taken[-1][1]
    assert 30 * DAY <= last - first <= 31 * DAY
    assert 30 <= len(taken) <= 34


HISTORIES = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 40)), min_size=1, max_size=12)


def expect_every_kept_moment_to_be_there(
    history: list[tuple[int, int]], keep_snapshots: int | None, keep_ms: int, start: int
) -> None:
    position = time = 0
    taken = []
    for more, later in history:
        position, time = position + more, time + later
        taken.append((position, time))
    log, wanted = log_with(*taken), BackupRetention(keep_snapshots=keep_snapshots, keep_ms=keep_ms)
    had = start == 0 or any(found[1] <= time - keep_ms for found in taken)

    positions, begins = kept_of(log, wanted, start=start)

    times = dict(taken)
    from_whole_log = begins == start == 0
    reaches = any(times[at] <= time - keep_ms and at >= begins for at in positions)
    assert from_whole_log or reaches or not had
    assert begins >= start
    assert begins == start or begins in positions
    assert taken[-1][0] in positions
    assert kept_of(log_with(*(found for found in taken if found[0] in positions)), wanted, start=begins) == (
        positions,
        begins,
    )


@given(HISTORIES, st.none() | st.integers(1, 4), st.integers(0, 200), st.sampled_from([0, 1]))
def test_every_moment_that_is_kept_can_be_restored(
    history: list[tuple[int, int]], keep_snapshots: int | None, keep_ms: int, start: int
) -> None:
    expect_every_kept_moment_to_be_there(history, keep_snapshots, keep_ms, start)


# --- a directory and a store


def keep_since(directory: Path, number: int) -> tuple[BackupRetention, list[int]]:
    """What keeps a directory's snapshots from the one of a number on; and where all were taken."""
    snapshots = MemberLog.open(directory).snapshots(1)
    keep_ms = snapshots[-1].timestamp - snapshots[number].timestamp
    return BackupRetention(keep_ms=keep_ms), [snapshot.log_position for snapshot in snapshots]


def shortened(directory: Path, wanted: BackupRetention, *, is_dry_run: bool = False) -> int:
    found = asyncio.run(shorten_directory(directory, wanted, host=Host.of_operating_system(), is_dry_run=is_dry_run))
    return found.removed_log_bytes


def restored_at(source: Path | str, target: Path, time: int) -> list[str]:
    """What the service has been given of a cluster that is restored to a time."""
    found = restore_backup(
        str(source), parse_members("0=a:7000"), target, cluster_id=ClusterId(0x77), now_ms=NOW_MS, time=time
    )
    return payloads(found.directories[0])


def copy_of(directory: Path, place: Path) -> Path:
    return Path(shutil.copytree(directory, place / "copy"))


def everything_in(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_directory_is_shortened_and_every_kept_time_can_be_restored(long_past: Path, tmp_path: Path) -> None:
    wanted, positions = keep_since(long_past, 2)
    directory = copy_of(long_past, tmp_path)
    before = everything_in(directory)
    told = shortened(directory, wanted, is_dry_run=True)
    assert everything_in(directory) == before

    assert shortened(directory, wanted) == told > 0

    log = MemberLog.open(directory)
    assert [found.log_position for found in log.snapshots(1)] == positions[2:]
    assert log.log.segment_base_position(positions[2]) == log.log.start_position > 0
    assert len([*(directory / "archive").glob("0-*.rec")]) < len([*(long_past / "archive").glob("0-*.rec")])
    assert [check.problem for check in verify_backup(str(directory)) if check.problem] == []
    for number, snapshot in enumerate(MemberLog.open(long_past).snapshots(1)[2:]):
        made = restored_at(directory, tmp_path / f"made-{number}", snapshot.timestamp)
        assert made == restored_at(long_past, tmp_path / f"expected-{number}", snapshot.timestamp)
    with pytest.raises(ConfigurationError):
        restored_at(directory, tmp_path / "too-early", MemberLog.open(long_past).snapshots(1)[0].timestamp - 1)
    assert shortened(directory, wanted) == 0


def contents_of(url: str) -> BackupContents:
    found = find_backup(url)
    assert found is not None
    assert found.index.backup is not None
    return found.index.backup


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def expect_store_to_keep(long_past: Path, url: str, tmp_path: Path) -> None:
    wanted, positions = keep_since(long_past, 2)
    ship(long_past, url)
    member = ColdMember(long_past, url)
    member.ship()
    segments = member.read()

    (pruned,) = prune_all(url, None, shorten=lambda index: shorten(index, wanted))

    assert len(pruned.shortened_backups) == 1
    contents = contents_of(url)
    assert contents.snapshot_positions == positions[2:]
    assert contents.log_start_position <= positions[2]
    assert ColdMember(long_past, url, 1).read() == segments  # a member with a new disk: it has them nowhere else
    fetch_backup(url, tmp_path / "back")
    assert [check.problem for check in verify_backup(url) if check.problem] == []
    for number, snapshot in enumerate(MemberLog.open(long_past).snapshots(1)[2:]):
        made = restored_at(tmp_path / "back", tmp_path / f"made-{number}", snapshot.timestamp)
        assert made == restored_at(long_past, tmp_path / f"expected-{number}", snapshot.timestamp)


def test_a_store_keeps_every_kept_time_and_what_a_member_has_there_alone(
    long_past: Path, url: str, tmp_path: Path
) -> None:
    expect_store_to_keep(long_past, url, tmp_path)


def test_planted_retention_that_begins_too_late_is_found(long_past: Path, url: str, tmp_path: Path) -> None:
    plant = next(plant for plant in PLANTS if plant.name == "backup-keeps-too-little")

    with planted(plant) as planting, pytest.raises(AssertionError):
        expect_store_to_keep(long_past, url, tmp_path)

    assert planting.count > 0


def a_start_after_the_snapshot(*arguments: object, log_start_position: int, **rest: object) -> KeptPast:
    kept = retention.choose_kept(*arguments, log_start_position=log_start_position, **rest)  # type: ignore[arg-type]  # passed on
    moved = kept.log_start_position > log_start_position
    return KeptPast(kept.dropped_positions, kept.log_start_position + moved)


def test_planted_start_after_the_snapshot_is_found_by_the_property(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "choose_kept", a_start_after_the_snapshot)

    with pytest.raises(AssertionError):
        expect_every_kept_moment_to_be_there([(10, 0), (10, 30), (10, 30)], None, 10, 0)


def test_what_neither_a_backup_nor_a_member_needs_goes_and_does_not_come_back(
    long_past: Path, url: str, tmp_path: Path
) -> None:
    """A directory may have more than the store: a copy does not bring back what was pruned."""
    wanted, positions = keep_since(long_past, 2)
    store = ClusterStore(ship(long_past, url).url.partition("/indexes/")[0])
    before = store.list_names("segments")

    (pruned,) = prune_all(url, None, shorten=lambda index: shorten(index, wanted))

    after, contents = store.list_names("segments"), contents_of(url)
    assert pruned.removed_count > 0
    assert len(after) == pruned.kept_segment_count < len(before)
    assert ship(long_past, url).written_count == 0
    assert (store.list_names("segments"), contents_of(url)) == (after, contents)
    assert contents.snapshot_positions == positions[2:]
    (again,) = prune_all(url, None, shorten=lambda index: shorten(index, wanted))
    assert (again.removed_count, again.shortened_backups) == (0, [])


def test_a_store_follows_a_directory_that_was_shortened(long_past: Path, url: str, tmp_path: Path) -> None:
    wanted, positions = keep_since(long_past, 3)
    directory = copy_of(long_past, tmp_path)
    store = ClusterStore(ship(directory, url).url.partition("/indexes/")[0])
    before = store.list_names("segments")
    shortened(directory, wanted)

    shipped = ship(directory, url)

    assert shipped.contents.snapshot_positions == positions[3:]
    assert shipped.contents.log_start_position == MemberLog.open(directory).log.start_position > 0
    assert store.list_names("segments") == before  # a prune removes what is shared
    prune_all(url, None)
    assert len(store.list_names("segments")) < len(before)
    fetch_backup(url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(directory)


def test_a_dry_run_changes_nothing_and_says_the_same(long_past: Path, url: str, tmp_path: Path) -> None:
    wanted, _ = keep_since(long_past, 2)
    ship(long_past, url)
    before = everything_in(tmp_path / "store")

    told = prune_all(url, None, shorten=lambda index: shorten(index, wanted), is_dry_run=True)

    assert everything_in(tmp_path / "store") == before
    assert prune_all(url, None, shorten=lambda index: shorten(index, wanted)) == told


def test_a_prune_that_is_cut_off_anywhere_leaves_a_backup(
    long_past: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, _ = keep_since(long_past, 3)
    ship(long_past, url)
    remove, left = ObjectStore.remove, 0

    def removing(self: ObjectStore, name: str) -> None:
        nonlocal left
        left -= 1
        if left < 0 and "pruning-" not in name:
            raise OSError("cut off")
        remove(self, name)  # type: ignore[arg-type]  # as it is

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "remove", removing)
        for left in range(2):  # noqa: B007 - the function above reads it
            with pytest.raises(Exception, match="cut off"):
                prune_all(url, None, shorten=lambda index: shorten(index, wanted))
            assert [check.problem for check in verify_backup(url) if check.problem] == []
    assert prune_all(url, None)[0].removed_count > 0


# --- the command


def trimaran(*arguments: str) -> tuple[int, str]:
    """Run a command; gives its exit status, and what it prints or the error."""
    found = CliRunner().invoke(build_app(arguments), [*arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        return exit_status_of(found.exception), str(found.exception)
    return found.exit_code, found.stdout or found.stderr


def test_command_prunes_a_directory_and_says_what_went(long_past: Path, tmp_path: Path) -> None:
    directory = copy_of(long_past, tmp_path)
    wanted, positions = keep_since(long_past, 2)
    assert wanted.keep_ms is not None
    days = ("--keep-days", str((wanted.keep_ms + 0.5) / DAY_MS), "-o", "jsonl")

    dry = trimaran("backup", "prune", str(directory), *days, "--dry-run")
    status, output = trimaran("backup", "prune", str(directory), *days)

    assert dry == (status, output)
    row = json.loads(output)
    assert status == 0
    assert (row["removed_snapshots"], row["kept_snapshots"]) == (positions[:2], positions[2:])
    assert row["removed_log_bytes"] == MemberLog.open(directory).log.start_position > 0


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (("PLACE",), ("--keep-days",)),
        (("PLACE", "--keep", "1"), ("--keep ",)),
        (("PLACE/nothing", "--keep-days", "1"), ("no backup", "cluster/cluster-id")),
    ],
)
def test_command_refuses_what_it_cannot_do(
    long_past: Path, tmp_path: Path, arguments: tuple[str, ...], facts: tuple[str, ...]
) -> None:
    status, output = trimaran("backup", "prune", *(each.replace("PLACE", str(tmp_path)) for each in arguments))

    assert status == 2
    assert has_facts(" ".join(output.split()), *facts)
    assert not (tmp_path / "nothing").exists()

"""A backup in an S3 store over HTTP that is slow, refuses, loses connections and lists what was: nothing goes wrong.

Either the client tries again until it succeeds, or the copy ends with an error that names the object; then the store
holds the backup before, and the next copy goes on where that one ended.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.s3_server import BUCKET, SLOW_S, Fault, FaultKind, S3Server
from tests.sampling import sampled
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.format.layout import segment_file_name
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.stored.cluster_store import ClusterStore, StoreError
from trimaran.archive.stored.pruning import prune
from trimaran.archive.tool.app import app as archive_app
from trimaran.cluster.cli.app import build_app, exit_status_of
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.shipping import ship_backup
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api import ConfigurationError

NOW_MS = 1_800_000_000_000
KEEPER = "tests.unit.cluster.testing.simulation.test_snapshots:Keeper"
OFTEN = 1 << 30
"""More requests than a client tries again."""

KINDS = (FaultKind.UNAVAILABLE, FaultKind.SLOW, FaultKind.LOST_ANSWER)
METHODS = ("PUT", "GET", "DELETE")
FAULTS = dict.fromkeys(product(KINDS, METHODS)).keys()
SOME_FAULTS = {*zip(KINDS, METHODS, strict=True)}
"""Each kind once and each method once: these run with the suite, the others in the campaign."""


@pytest.fixture
def url(s3: S3Server, request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def content(url: str, target: Path) -> list[str]:
    """What the store's backup holds."""
    fetch_backup(url, target)
    assert [check.problem for check in verify_backup(str(target), service=Keeper) if check.problem] == []
    return payloads(target)


def ship_and_fail(stage: Path, s3: S3Server, url: str, *, kind: FaultKind, name: str) -> None:
    """Begin a copy that ends when it writes an object; after it the store is well again."""
    s3.faults.append(Fault(kind, "PUT", name, OFTEN))
    with pytest.raises(StoreError, match=re.escape(name)):
        ship_backup(stage, url, clock_ms=lambda: NOW_MS)
    s3.faults.clear()


@pytest.mark.parametrize(("kind", "method"), sampled(FAULTS, FAULTS - SOME_FAULTS))
def test_copy_and_restore_go_through_a_store_that_fails_now_and_then(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path, kind: FaultKind, method: str
) -> None:
    s3.faults.append(Fault(kind, method, count=1))

    for stage in stages[1:]:
        ship_backup(stage, url, clock_ms=lambda: NOW_MS)

    assert content(url, tmp_path / "back") == payloads(stages[2])
    assert s3.faults[0].count == 0


def names_of(before: Path, stage: Path) -> dict[str, str]:
    """What a copy of a stage after the one before writes: its index, a note before that, the rest of a segment that has
    become full, and the tail.
    """
    member = MemberLog.open(stage)
    started_ms, recorded = member.log.start_timestamp_ms, member.recorded_position
    return {
        "index": f"indexes/backup-{started_ms}.json",
        "note": f"indexes/writing-backup-{started_ms}.json",
        "segment": segment_file_name(member.log.recording_id, MemberLog.open(before).recorded_position),
        "tail": member.log.segment_file_name(member.log.segment_base_position(recorded)),
    }


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (FaultKind.CUT, "segment"),
        pytest.param(FaultKind.LOST_ANSWER, "tail", marks=pytest.mark.campaign),
        (FaultKind.UNAVAILABLE, "note"),
        pytest.param(FaultKind.CUT, "index", marks=pytest.mark.campaign),
        (FaultKind.LOST_ANSWER, "index"),
    ],
)
def test_copy_that_is_cut_off_leaves_the_backup_before_and_the_next_one_goes_on(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path, kind: FaultKind, what: str
) -> None:
    ship_backup(stages[1], url, clock_ms=lambda: NOW_MS)

    ship_and_fail(stages[2], s3, url, kind=kind, name=names_of(stages[1], stages[2])[what])

    assert content(url, tmp_path / "before") == payloads(stages[1])
    assert ship_backup(stages[2], url, clock_ms=lambda: NOW_MS).written_count > 0
    assert content(url, tmp_path / "after") == payloads(stages[2])


def test_first_copy_that_is_cut_off_is_no_backup_and_the_next_one_writes_only_the_rest(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path
) -> None:
    ship_and_fail(stages[1], s3, url, kind=FaultKind.CUT, name="0-131072.rec")
    with pytest.raises(ConfigurationError, match="no backup at"):
        fetch_backup(url, tmp_path / "before")
    s3.requests.clear()

    ship_backup(stages[1], url, clock_ms=lambda: NOW_MS)

    written = s3.written()
    assert "0-131072.rec" in written
    assert not any(name.startswith("00000") for name in written)  # whole segments
    assert content(url, tmp_path / "after") == payloads(stages[1])


def test_snapshot_that_a_cut_off_copy_wrote_for_nothing_is_removed(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path
) -> None:
    """The copy ends after half of a snapshot; until the next one the directory drops that snapshot."""
    ship_and_fail(stages[1], s3, url, kind=FaultKind.CUT, name="2-0.rec")

    shipped = ship_backup(stages[2], url, clock_ms=lambda: NOW_MS)

    folder = shipped.url.rpartition("/")[2].removesuffix(".json")
    place = ObjectStore(shipped.url.partition("/indexes/")[0])
    assert place.list_names(folder) == sorted(part.name for part in shipped.contents.parts)
    assert content(url, tmp_path / "after") == payloads(stages[2])


def test_listing_that_is_stale_hides_nothing_from_a_copy_and_its_reader(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path
) -> None:
    """Everything is found by its name, once the index is named; a prune is refused."""
    s3.faults.append(Fault(FaultKind.STALE_LISTING))

    for stage in stages:
        shipped = ship_backup(stage, url, clock_ms=lambda: NOW_MS)
        assert [check.problem for check in verify_backup(shipped.url, service=Keeper) if check.problem] == []

    assert content(shipped.url, tmp_path / "back") == payloads(stages[2])
    store = ClusterStore(shipped.url.partition("/indexes/")[0])
    with pytest.raises(ConfigurationError, match="late"):
        prune(store, keep_count=1, clock_ms=lambda: NOW_MS)


def test_commands_on_archives_and_replays_read_a_backup_by_its_url(stages: list[Path], s3: S3Server, url: str) -> None:
    ship_backup(stages[2], url, clock_ms=lambda: NOW_MS)

    verified = CliRunner().invoke(archive_app, ["verify", url, "-o", "jsonl"])
    dumped = CliRunner().invoke(archive_app, ["dump", url, "--recording-id", "0"])
    compared = CliRunner().invoke(archive_app, ["diff", url, str(stages[2])])
    replayed = [trimaran("replay", name, "--service", KEEPER, "-o", "json") for name in (url, str(stages[2]))]

    assert all(found.exit_code == 0 for found in (verified, dumped, compared, *replayed)), verified.output
    assert len(verified.output.splitlines()) == 3  # the log, and a snapshot's two recordings
    local = CliRunner().invoke(archive_app, ["dump", str(stages[2]), "--recording-id", "0"])
    assert dumped.output == local.output != ""
    positions = [json.loads(found.stdout)["log_position"] for found in replayed]
    assert positions[0] == positions[1] > 0


def test_commands_that_change_an_archive_refuse_a_url(stages: list[Path], s3: S3Server, url: str) -> None:
    ship_backup(stages[0], url, clock_ms=lambda: NOW_MS)

    marked = CliRunner().invoke(archive_app, ["verify", url, "--mark-invalid"])

    assert marked.exit_code == 2
    assert "object store" in marked.output


def trimaran(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(build_app(arguments), [*arguments])


def test_url_of_no_bucket_and_of_no_server_are_errors_that_name_it(stages: list[Path], s3: S3Server) -> None:
    with pytest.raises(StoreError, match="s3://no-such-bucket/x"):
        ship_backup(stages[0], "s3://no-such-bucket/x", clock_ms=lambda: NOW_MS)
    with pytest.raises(ConfigurationError, match="no backup"):
        [*verify_backup(f"s3://{BUCKET}/nothing")]


# --- a store that refuses, and one that does not answer


def commands_on(url: str, stage: Path, place: Path) -> list[tuple[str, ...]]:
    return [
        ("backup", "ship", str(stage), url),
        ("backup", "status", url),
        ("backup", "verify", url),
        ("backup", "prune", url, "--keep", "1"),
        ("backup", "restore", "--from", url, "--members", "0=a:7000", "--directory", str(place / "restored")),
        ("archive", "verify", url),
    ]


def expect_failures(url: str, stage: Path, place: Path, *, status: int, facts: tuple[str, ...]) -> None:
    """Expect that each command fails with one status, the store's words and a store's advice, and no disk's."""
    for arguments in commands_on(url, stage, place):
        ended, told = failed(*arguments)
        assert ended == status, (arguments, told)
        assert has_facts(told, *facts)
        assert "dmesg" not in told


def failed(*arguments: str) -> tuple[int, str]:
    """Run a command that fails; gives its exit status, and the error."""
    found = trimaran(*arguments)
    assert found.exception is not None, found.output
    if isinstance(found.exception, SystemExit):
        return found.exit_code, found.stderr
    return exit_status_of(found.exception), str(found.exception)


@pytest.fixture
def fresh_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """Let the store's library begin anew with what a test sets, and again after it."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield s3fs.S3FileSystem
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_wrong_key_is_told_in_the_stores_words(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path, fresh_clients: type
) -> None:
    s3.faults.append(Fault(FaultKind.DENIED))

    expect_failures(
        url, stages[0], tmp_path, status=1, facts=(f"s3://{BUCKET}", "PermissionError", "check the credentials")
    )


def test_a_server_that_is_down_does_not_answer(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path, fresh_clients: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and never listens
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)

        expect_failures(url, stages[0], tmp_path, status=3, facts=(endpoint, "AWS_ENDPOINT_URL_S3"))


def test_a_store_that_hangs_has_not_answered_after_two_of_its_time_outs(
    stages: list[Path], s3: S3Server, url: str, fresh_clients: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    monkeypatch.setattr(fresh_clients, "read_timeout", SLOW_S / 4)
    s3.faults.append(Fault(FaultKind.SLOW, "GET"))
    s3.requests.clear()

    status, told = failed("backup", "status", url)

    assert status == 3, told
    assert len(s3.requests) == 2


def test_a_bucket_that_is_not_there_is_named(stages: list[Path], s3: S3Server) -> None:
    status, told = failed("backup", "ship", str(stages[0]), "s3://no-such-bucket/x")

    assert status == 1
    assert has_facts(told, "s3://no-such-bucket/x", "no such bucket")


def test_status_asks_the_store_itself(stages: list[Path], s3: S3Server, url: str) -> None:
    nothing, _ = failed("backup", "status", url)
    shipped = ship_backup(stages[2], url, clock_ms=lambda: NOW_MS)

    found = trimaran("backup", "status", url, "-o", "jsonl")

    assert nothing == 2
    assert found.exit_code == 0, found.output
    row = json.loads(found.output)
    assert (row["url"], row["log_stop_position"]) == (shipped.url, shipped.contents.log_stop_position)
    assert row["snapshot_positions"] == shipped.contents.snapshot_positions


def test_an_object_that_is_damaged_is_no_wrong_usage(
    stages: list[Path], s3: S3Server, url: str, tmp_path: Path
) -> None:
    shipped = ship_backup(stages[0], url, clock_ms=lambda: NOW_MS)
    place = ObjectStore(shipped.url.partition("/indexes/")[0])
    place.remove(StoredName(f"segments/{place.list_names('segments')[0]}"))

    status, told = failed(
        "backup", "restore", "--from", url, "--members", "0=a:7000", "--directory", str(tmp_path / "restored")
    )

    assert status == 1
    assert "missing" in told

"""Where two members' logs differ: planted differences have to be found at exactly their position."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from tests.spark.engines import rows_where, with_changed, without
from tests.spark.log_truth import LogTruth, rows
from tests.spark.recorded_cluster import RecordedCluster
from trimaran.archive.spark.analyses import compare_members, differing_frames, divergence
from trimaran.archive.spark.analyses.sql import sql
from trimaran.service_api.errors import ConfigurationError

SINGLE = "single-node-node0"
CHECKSUMMED = "checksummed-node0"
CRC32C = "three-crc32c-node0"
FAILOVER = "three-node-failover-node"


def flip(log: DataFrame, position: int, byte: int) -> DataFrame:
    """Set one byte of the payload of one frame to 0xFF."""
    flipped = f"substr(payload, 1, {byte}) || x'ff' || substr(payload, {byte + 2}, {1 << 20})"
    return with_changed(log, payload=f"if(position = {position}, {flipped}, payload)")


def test_the_members_of_a_real_cluster_have_equal_logs(sample_log: Callable[[str], DataFrame]) -> None:
    """Samples, README: "in three-node-failover the log frames are equal on all three nodes"."""
    logs = {str(i): sample_log(f"{FAILOVER}{i}") for i in range(3)}
    end = LogTruth(f"{FAILOVER}0").recording["scan_ended"]["position"]

    found = rows(compare_members(logs))

    assert [(row["member_a"], row["member_b"]) for row in found] == [("0", "1"), ("0", "2"), ("1", "2")]
    assert {row["verdict"] for row in found} == {"equal"}
    assert {row["identical_to"] for row in found} == {end}
    assert {row["diverges_at"] for row in found} == {None}
    with pytest.raises(ConfigurationError, match="logs=0"):
        compare_members({"0": logs["0"]})


def test_a_flipped_byte_is_found_at_its_frame(sample_log: Callable[[str], DataFrame]) -> None:
    entry = next(e for e in LogTruth(SINGLE).of("SessionMessageHeader")[700:] if e.message["length"] > 300)
    log = sample_log(SINGLE)
    bad = flip(log, entry.position, 211)

    (overview,) = rows(divergence(log, bad))
    frames = rows(differing_frames(log, bad))

    assert (overview["verdict"], overview["diverges_at"]) == ("different", entry.position)
    assert overview["identical_to"] == entry.position
    assert overview["differences"] == ["payload"]
    assert [overview[name] for name in ("differing_frames", "only_in_a", "only_in_b")] == [1, 0, 0]
    assert [(f["position"], f["first_byte"], f["differences"]) for f in frames] == [(entry.position, 211, ["payload"])]
    assert frames[0]["b"]["payload"][211] == 0xFF
    assert frames[0]["a"]["leadership_term_id"] == entry.fields["leadershipTermId"]


@pytest.mark.parametrize("name", [CHECKSUMMED, CRC32C])
def test_checksums_say_whose_bytes_are_wrong(sample_log: Callable[[str], DataFrame], name: str) -> None:
    position = LogTruth(name).of("SessionMessageHeader")[300].position
    log = sample_log(name)

    (overview,) = rows(divergence(log, flip(log, position, 33)))

    assert overview["diverges_at"] == position
    assert (overview["checksum_a"], overview["checksum_b"]) == ("right", "wrong")


@pytest.mark.parametrize("name", [CHECKSUMMED, CRC32C])
def test_session_ids_say_nothing_where_one_log_alone_has_checksums(
    sample_log: Callable[[str], DataFrame], name: str
) -> None:
    log = sample_log(name)
    plain = with_changed(log, session_id="1447082106")
    position = LogTruth(name).of("SessionMessageHeader")[300].position

    (same,) = rows(divergence(log, plain))
    (different,) = rows(divergence(log, flip(plain, position, 33)))
    (session_ids,) = rows(divergence(plain, with_changed(plain, session_id="if(position = 96, 5, session_id)")))

    assert (same["verdict"], same["differing_frames"]) == ("equal", 0)
    assert (different["diverges_at"], different["differences"]) == (position, ["payload"])
    assert (different["checksum_a"], different["checksum_b"]) == ("right", "none")
    assert (session_ids["diverges_at"], session_ids["differences"]) == (96, ["session_id"])


def test_session_ids_say_nothing_where_the_logs_have_checksums_of_two_kinds(
    sample_log: Callable[[str], DataFrame],
) -> None:
    log = sample_log(CRC32C)
    crc32 = "crc32(rpad(payload, frame_length - 32 + (32 - frame_length % 32) % 32, x'00'))"
    signed = f"CAST(({crc32} + {1 << 31}) % {1 << 32} - {1 << 31} AS INT)"
    other = with_changed(log, session_id=f"if(type = 1, {signed}, session_id)")
    position = LogTruth(CRC32C).of("SessionMessageHeader")[300].position

    (same,) = rows(divergence(log, other))
    (different,) = rows(divergence(log, flip(other, position, 33)))

    assert (same["verdict"], same["differing_frames"]) == ("equal", 0)
    assert (different["diverges_at"], different["differences"]) == (position, ["payload"])
    assert (different["checksum_a"], different["checksum_b"]) == ("right", "wrong")


def test_where_a_purged_log_begins_its_checksums_are_looked_at(sample_log: Callable[[str], DataFrame]) -> None:
    """A few frames in the middle of a block, which begin at whole 64 KiB, as each log does."""
    log = with_changed(rows_where(sample_log(CRC32C), "position < 2000"), position="position + 196608")

    (found,) = rows(divergence(log, with_changed(log, session_id="7")))

    assert (found["verdict"], found["start_position"]) == ("equal", 196608)


def test_a_foreign_suffix_is_found_where_it_begins(sample_log: Callable[[str], DataFrame]) -> None:
    """What a leader without a majority appended, against what the others committed: from there on other frames."""
    truth = LogTruth(f"{FAILOVER}0")
    begin = truth.of("NewLeadershipTermEvent")[2].position
    positions = [frame["position"] for frame in truth.frames if frame["position"] >= begin]
    kept = [position for position in positions if position % 64 == 0]
    log = sample_log(f"{FAILOVER}0")
    suffix = with_changed(rows_where(log, f"position >= {begin} and position % 64 = 0"), session_id="99")
    both = f"SELECT * FROM log WHERE position < {begin} UNION ALL SELECT * FROM suffix"

    (overview,) = rows(divergence(log, sql(both, log=log, suffix=suffix)))

    common = [position for position in positions if position < overview["stop_position"]]
    assert overview["diverges_at"] == overview["identical_to"] == begin
    assert overview["differences"] == ["session_id"]
    assert overview["stop_position"] == overview["stop_b"] > max(kept)
    assert overview["differing_frames"] == len(kept)
    assert overview["only_in_a"] == len(common) - len(kept) > 0
    assert overview["only_in_b"] == 0


def test_a_log_that_is_behind_or_purged_is_not_different(sample_log: Callable[[str], DataFrame]) -> None:
    log = sample_log(SINGLE)
    behind, purged = rows_where(log, "position < 500000"), rows_where(log, "position >= 131072")

    (shorter,) = rows(divergence(log, behind))
    (longer,) = rows(divergence(behind, purged, block_length_bytes=65536))
    (apart,) = rows(divergence(rows_where(log, "position < 131072"), purged))

    assert (shorter["verdict"], shorter["identical_to"]) == ("a is longer", shorter["stop_b"])
    assert (longer["verdict"], longer["start_position"], longer["stop_position"]) == (
        "b is longer",
        131072,
        longer["stop_a"],
    )
    assert (apart["verdict"], apart["identical_to"]) == ("nothing in common", None)


def test_a_frame_that_one_member_lacks_is_told(sample_log: Callable[[str], DataFrame]) -> None:
    position = LogTruth(SINGLE).entries[50].position
    log = sample_log(SINGLE)

    frames = rows(differing_frames(log, rows_where(log, f"position <> {position}")))

    assert [(f["position"], f["differences"], f["b"]) for f in frames] == [(position, ["only in a"], None)]


def test_what_cannot_be_compared_is_refused(sample_log: Callable[[str], DataFrame]) -> None:
    log = sample_log(SINGLE)

    with pytest.raises(ConfigurationError, match=r"divergence.*missing=payload"):
        divergence(without(log, "payload"), log)
    with pytest.raises(ConfigurationError, match=r"ignore='colour' .*frame_length"):
        divergence(log, log, ignore=["colour"])


@pytest.mark.slow
def test_a_byte_that_one_member_of_our_cluster_lost_is_found(
    recorded_cluster: RecordedCluster, recorded_log: Callable[[int], DataFrame]
) -> None:
    """In the log of the leader that was killed and has caught up; all else in the three logs is equal."""
    killed = recorded_cluster.first.leader_member_id
    logs = {f"member-{i}": recorded_log(i) for i in range(3)}
    spoilt = f"member-{killed}"
    (last,) = rows(sql("SELECT max(position) AS position FROM log WHERE template_id = 1", log=logs[spoilt]))
    place = last["position"]

    found = rows(compare_members(logs | {spoilt: flip(logs[spoilt], place, 32)}, block_length_bytes=65536))

    different = [row for row in found if row["verdict"] == "different"]
    assert [spoilt in (row["member_a"], row["member_b"]) for row in different] == [True, True]
    assert {(row["diverges_at"], row["differing_frames"]) for row in different} == {(place, 1)}
    wrong = {row["checksum_a" if row["member_a"] == spoilt else "checksum_b"] for row in different}
    right = {row["checksum_b" if row["member_a"] == spoilt else "checksum_a"] for row in different}
    assert (wrong, right) == ({"wrong"}, {"right"})
    assert [row["verdict"] for row in found if row not in different] == ["equal"]

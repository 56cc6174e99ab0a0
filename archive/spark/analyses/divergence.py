"""Finds where the logs of two members differ, and in which fields.

Members of a cluster record the same bytes, so up to where both have recorded, everything is equal. What may differ
without meaning anything: where the logs begin (one was purged) and end (one is behind), and the session id of a data
frame, which is a CRC-32 or a CRC-32C where a recording has checksums, if the two have not the same kind.

The idea: reduce each log to a digest for every block of positions, compare the digests, and join frames in the range of
the blocks that differ only. The digest is the xor of a hash of each frame, position included, so that the order of rows
does not matter and nothing is sorted. A join of all frames finds the same, on one machine and in logs of a few hundred
MiB in less time; but it shuffles every frame, where this shuffles a row for each block.

The comparison of digests is a job that runs when a function of this module is called: what it finds bounds what is
joined, and if nothing differs nothing is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from ....service_api.errors import ConfigurationError
from ....service_api.wire.checksum import ChecksumKind
from ...reading.difference import Verdict
from .block_digests import (
    BLOCK_LENGTH_BYTES,
    COMPARED,
    BlockComparison,
    block_number,
    compare_digests,
    digest_blocks,
)
from .engine import Column, DataFrame, F
from .log_columns import has_valid_checksum


def divergence(
    log_a: DataFrame, log_b: DataFrame, *, ignore: Sequence[str] = (), block_length_bytes: int = BLOCK_LENGTH_BYTES
) -> DataFrame:
    """Compare the logs of two members, and say in one row whether and where they differ.

    Needs of each log, which is of one recording, all columns that frames have in the file: position, frame_length,
    version, flags, type, term_offset, session_id, stream_id, term_id, reserved_value, payload, but for those that
    `ignore` names. `block_length_bytes` is how much of the log one digest stands for.

    Gives one row:

    - verdict: "equal", "a is longer", "b is longer" (equal as far as both go), "different", or "nothing in common" (one
      ends before the other begins), as `trimaran archive diff` says;
    - start_position and stop_position: the range that both have, in bytes, which was compared; start_a, stop_a,
      start_b, stop_b: the ranges of the two; a log without frames has NULL here;
    - identical_to: up to which position the two are equal; diverges_at: the position of the first frame that differs or
      that only one has (NULL if none does), and differences: in which columns, or "only in a", "only in b";
    - differing_frames, only_in_a, only_in_b: how many frames of the compared range are not the same, or are in one
      alone;
    - checksum_a and checksum_b: whether the frame at diverges_at is what its checksum says: "right" or "wrong", or
      "none" where the log has no CRC-32 and no CRC-32C. Where one is wrong that member's disk is to blame, not the
      cluster.

    Which checksums a log has is found out by looking at a few frames of each block. Where the two have not the same,
    the session ids say nothing, and are left out.

    Cost: one pass over each log when this is called; where something differs, another one when the result is asked for,
    in which the frames of the blocks that differ are joined by position.
    """
    found = _compare(log_a, log_b, ignore, block_length_bytes)
    return _overview(log_a, log_b, found, block_length_bytes)


def differing_frames(
    log_a: DataFrame, log_b: DataFrame, *, ignore: Sequence[str] = (), block_length_bytes: int = BLOCK_LENGTH_BYTES
) -> DataFrame:
    """Return the frames of two members' logs that are not the same, side by side, by position.

    Needs what `divergence` does. Only the range that both logs have is compared. Gives position, differences (the names
    of the columns, or "only in a", "only in b"), checksum_a and checksum_b ("right", "wrong", "none"), first_byte (the
    offset in the payload, in bytes, from which they differ; NULL if the payloads are equal), and a and b: structs of
    the frame's columns, NULL where there is no frame; leadership_term_id, cluster_session_id and timestamp are among
    them where the logs have them.

    Cost: that of `divergence`.
    """
    found = _compare(log_a, log_b, ignore, block_length_bytes)
    return _join(log_a, log_b, found, block_length_bytes).orderBy("position")


def compare_members(
    logs: Mapping[str, DataFrame], *, ignore: Sequence[str] = (), block_length_bytes: int = BLOCK_LENGTH_BYTES
) -> DataFrame:
    """Compare the logs of several members, each with each: one row for each pair.

    `logs` has what `divergence` needs, by a name for each member. Gives member_a and member_b, then what `divergence`
    does. The member that is in all rows with "different" is the one that went astray.

    Cost: one pass over each log when this is called, however many there are; the digests, a row for each block, are
    kept meanwhile. Then as `divergence` for each pair that differs.

    Raises:
        ConfigurationError: fewer than two logs, or one lacks a column.
    """
    if len(logs) < 2:
        raise ConfigurationError(f"nothing to compare: logs={','.join(logs)} expected two or more")
    digests = {name: digest_blocks(log, ignore, block_length_bytes).persist() for name, log in logs.items()}
    try:
        found = {(a, b): compare_digests(digests[a], digests[b], ignore) for a, b in combinations(logs, 2)}
    finally:
        for digest in digests.values():
            digest.unpersist()
    pairs = [
        _overview(logs[a], logs[b], of_pair, block_length_bytes).select(
            F.lit(a).alias("member_a"), F.lit(b).alias("member_b"), "*"
        )
        for (a, b), of_pair in found.items()
    ]
    whole = pairs[0]
    for pair in pairs[1:]:
        whole = whole.unionByName(pair)
    return whole


def _compare(log_a: DataFrame, log_b: DataFrame, ignore: Sequence[str], block_length_bytes: int) -> BlockComparison:
    digest_a, digest_b = (digest_blocks(log, ignore, block_length_bytes) for log in (log_a, log_b))
    return compare_digests(digest_a, digest_b, ignore)


_CONTEXT: Final = ("leadership_term_id", "cluster_session_id", "timestamp")
"""Columns that follow from the payload: shown, not compared."""
_LONGEST_STEP: Final = 23
"""Payloads are shorter than 2 to the power of one more."""


def _join(log_a: DataFrame, log_b: DataFrame, found: BlockComparison, block_length_bytes: int) -> DataFrame:
    """The frames of the blocks that differ, side by side, where they are not the same; not ordered."""
    names = found.names
    shown = [name for name in (*COMPARED, *_CONTEXT) if name in log_a.columns and name in log_b.columns]
    a, b = (
        _narrow(log, found, block_length_bytes).select("position", F.struct(*shown).alias(side))
        for log, side in ((log_a, "a"), (log_b, "b"))
    )
    changed = F.array(*(F.when(~F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}")), F.lit(name)) for name in names))
    differences = (
        F.when(F.col("b").isNull(), F.array(F.lit("only in a")))
        .when(F.col("a").isNull(), F.array(F.lit("only in b")))
        .otherwise(F.array_compact(changed))
    )
    return (
        a.join(b, "position", "full_outer")
        .withColumn("differences", differences)
        .where(F.size("differences") > 0)
        .select(
            *("position", "differences"),
            _checksum("a", found.checksum_a).alias("checksum_a"),
            _checksum("b", found.checksum_b).alias("checksum_b"),
            (_first_byte() if "payload" in names else F.lit(None).cast("int")).alias("first_byte"),
            *("a", "b"),
        )
    )


def _narrow(log: DataFrame, found: BlockComparison, block_length_bytes: int) -> DataFrame:
    """The frames of the blocks that differ, within the range that both logs have."""
    if found.common is None or found.first_block is None or found.last_block is None:
        return log.where(F.lit(False))
    start, stop = found.common
    start = max(start, found.first_block * block_length_bytes)
    stop = min(stop, (found.last_block + 1) * block_length_bytes)
    narrowed = log.where((F.col("position") >= start) & (F.col("position") < stop))
    return narrowed if found.blocks is None else narrowed.where(block_number(block_length_bytes).isin(found.blocks))


def _overview(log_a: DataFrame, log_b: DataFrame, found: BlockComparison, block_length_bytes: int) -> DataFrame:
    """The one row of `divergence`."""
    frames = _join(log_a, log_b, found, block_length_bytes)
    first = F.min_by(F.struct("position", "differences", "checksum_a", "checksum_b"), "position")
    only_a, only_b = (F.count_if(F.col("differences")[0] == f"only in {side}") for side in "ab")
    facts = frames.agg(
        *(first.alias("first"), F.count(F.lit(1)).alias("all"), only_a.alias("only_a"), only_b.alias("only_b"))
    )
    start, stop = found.common or (None, None)
    ranges = {
        "start_position": start,
        "stop_position": stop,
        "start_a": found.start_a,
        "stop_a": found.stop_a,
        "start_b": found.start_b,
        "stop_b": found.stop_b,
    }
    at = F.col("first.position")
    verdict = F.when(at.isNotNull(), Verdict.DIFFERENT.value).otherwise(_verdict_of_lengths(found).value)
    return facts.select(
        verdict.alias("verdict"),
        *(F.lit(value).cast("long").alias(name) for name, value in ranges.items()),
        F.coalesce(at, F.lit(stop).cast("long")).alias("identical_to"),
        at.alias("diverges_at"),
        F.col("first.differences").alias("differences"),
        (F.col("all") - F.col("only_a") - F.col("only_b")).alias("differing_frames"),
        F.col("only_a").alias("only_in_a"),
        F.col("only_b").alias("only_in_b"),
        F.col("first.checksum_a").alias("checksum_a"),
        F.col("first.checksum_b").alias("checksum_b"),
    )


def _verdict_of_lengths(found: BlockComparison) -> Verdict:
    """Judge two logs by where they begin and end, as if what they have in common were the same."""
    if found.common is None:
        is_nothing = found.stop_a is None and found.stop_b is None
        return Verdict.EQUAL if is_nothing else Verdict.NOTHING_IN_COMMON
    stop_a, stop_b = found.stop_a or 0, found.stop_b or 0
    if stop_a == stop_b:
        return Verdict.EQUAL
    return Verdict.A_LONGER if stop_a > stop_b else Verdict.B_LONGER


def _checksum(side: str, kind: ChecksumKind | None) -> Column:
    """Whether a frame is what its checksum says; NULL where there is no data frame."""
    if kind is None:
        return F.lit("none")
    return F.when(has_valid_checksum(kind, f"{side}."), "right").when(F.col(f"{side}.type") == 1, "wrong")


def _first_byte() -> Column:
    """The offset from which two payloads differ: how much they have in common, found by halving."""
    a, b = F.col("a.payload"), F.col("b.payload")
    shorter = F.least(F.length(a), F.length(b))
    steps = F.array(*(F.lit(1 << power) for power in reversed(range(_LONGEST_STEP + 1))))

    def add(known: Column, step: Column) -> Column:
        is_equal = F.substr(a, known + 1, step) == F.substr(b, known + 1, step)
        return F.when((known + step <= shorter) & is_equal, known + step).otherwise(known)

    return F.when(a != b, F.aggregate(steps, F.lit(0), add))

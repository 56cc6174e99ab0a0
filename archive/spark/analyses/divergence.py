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
from ....service_api.wire.frame import TYPE_DATA
from ...reading.difference import Verdict
from .block_digests import (
    BLOCK_LENGTH_BYTES,
    COMPARED,
    BlockComparison,
    block_number,
    compare_digests,
    digest_blocks,
)
from .log_columns import has_valid_checksum
from .sql import DataFrame, sql, text_of


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
    frames = _join(log_a, log_b, found, block_length_bytes)
    return sql("SELECT * FROM frames ORDER BY position", frames=frames)


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
    pairs = {
        f"pair_{number}": (a, b, _overview(logs[a], logs[b], of_pair, block_length_bytes))
        for number, ((a, b), of_pair) in enumerate(found.items())
    }
    texts = [
        f"SELECT {text_of(a)} AS member_a, {text_of(b)} AS member_b, * FROM {name}" for name, (a, b, _) in pairs.items()
    ]
    return sql(" UNION ALL ".join(texts), **{name: overview for name, (_, _, overview) in pairs.items()})


def _compare(log_a: DataFrame, log_b: DataFrame, ignore: Sequence[str], block_length_bytes: int) -> BlockComparison:
    digest_a, digest_b = (digest_blocks(log, ignore, block_length_bytes) for log in (log_a, log_b))
    return compare_digests(digest_a, digest_b, ignore)


_CONTEXT: Final = ("leadership_term_id", "cluster_session_id", "timestamp")
"""Columns that follow from the payload: shown, not compared."""
_LONGEST_STEP: Final = 23
"""Payloads are shorter than 2 to the power of one more."""


def _join(log_a: DataFrame, log_b: DataFrame, found: BlockComparison, block_length_bytes: int) -> DataFrame:
    """The frames of the blocks that differ, side by side, where they are not the same; not ordered."""
    shown = ", ".join(name for name in (*COMPARED, *_CONTEXT) if name in log_a.columns and name in log_b.columns)
    changed = ", ".join(f"CASE WHEN a.{name} IS DISTINCT FROM b.{name} THEN '{name}' END" for name in found.names)
    condition = _condition(found, block_length_bytes)
    return sql(
        f"""
        SELECT position, split(differences, ',') AS differences,
            {_checksum(log_a, "a", found.checksum_a)} AS checksum_a,
            {_checksum(log_b, "b", found.checksum_b)} AS checksum_b,
            {_FIRST_BYTE if "payload" in found.names else "CAST(NULL AS INT)"} AS first_byte, a, b
        FROM (
            SELECT position, a, b, CASE WHEN b IS NULL THEN 'only in a' WHEN a IS NULL THEN 'only in b'
                ELSE concat_ws(',', {changed}) END AS differences
            FROM (SELECT position, struct({shown}) AS a FROM log_a WHERE {condition})
            FULL OUTER JOIN (SELECT position, struct({shown}) AS b FROM log_b WHERE {condition}) USING (position)
        )
        WHERE differences <> ''
        """,
        log_a=log_a,
        log_b=log_b,
    )


def _condition(found: BlockComparison, block_length_bytes: int) -> str:
    """Whether a frame is in a block that differs, within the range that both logs have."""
    if found.common is None or found.first_block is None or found.last_block is None:
        return "FALSE"
    start, stop = found.common
    start = max(start, found.first_block * block_length_bytes)
    stop = min(stop, (found.last_block + 1) * block_length_bytes)
    is_within = f"position >= {start} AND position < {stop}"
    if found.blocks is None:
        return is_within
    return f"{is_within} AND {block_number(block_length_bytes)} IN ({', '.join(map(str, found.blocks))})"


def _overview(log_a: DataFrame, log_b: DataFrame, found: BlockComparison, block_length_bytes: int) -> DataFrame:
    """The one row of `divergence`."""
    start, stop = found.common or (None, None)
    ranges = {
        "start_position": start,
        "stop_position": stop,
        "start_a": found.start_a,
        "stop_a": found.stop_a,
        "start_b": found.start_b,
        "stop_b": found.stop_b,
    }
    numbers = {name: f"CAST({'NULL' if value is None else value} AS BIGINT)" for name, value in ranges.items()}
    return sql(
        f"""
        SELECT CASE WHEN diverges_at IS NULL THEN '{_verdict_of_lengths(found)}' ELSE '{Verdict.DIFFERENT}' END
                AS verdict,
            {", ".join(f"{number} AS {name}" for name, number in numbers.items())},
            coalesce(diverges_at, {numbers["stop_position"]}) AS identical_to, diverges_at, differences,
            frames - only_in_a - only_in_b AS differing_frames, only_in_a, only_in_b, checksum_a, checksum_b
        FROM (
            SELECT min(position) AS diverges_at, min_by(differences, position) AS differences,
                min_by(checksum_a, position) AS checksum_a, min_by(checksum_b, position) AS checksum_b,
                count(*) AS frames,
                count(CASE WHEN element_at(differences, 1) = 'only in a' THEN 1 END) AS only_in_a,
                count(CASE WHEN element_at(differences, 1) = 'only in b' THEN 1 END) AS only_in_b
            FROM found
        )
        """,
        found=_join(log_a, log_b, found, block_length_bytes),
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


def _checksum(log: DataFrame, side: str, kind: ChecksumKind | None) -> str:
    """Whether a frame is what its checksum says; NULL where there is no data frame."""
    if kind is None:
        return "'none'"
    is_right = has_valid_checksum(log, kind, f"{side}.")
    return f"CASE WHEN {is_right} THEN 'right' WHEN {side}.type = {TYPE_DATA} THEN 'wrong' END"


_IS_COMMON: Final = """known + (1 << power) <= least(length(a.payload), length(b.payload))
        AND substr(a.payload, known + 1, 1 << power) = substr(b.payload, known + 1, 1 << power)"""
_FIRST_BYTE: Final = f"""CASE WHEN a.payload <> b.payload THEN aggregate(sequence({_LONGEST_STEP}, 0, -1), 0,
    (known, power) -> CASE WHEN {_IS_COMMON} THEN known + (1 << power) ELSE known END) END"""
"""The offset from which two payloads differ: how much they have in common, found by halving."""

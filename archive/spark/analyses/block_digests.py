"""Digests of blocks of a log: they are compared first, so that only blocks that differ are compared by frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....service_api.errors import ConfigurationError
from ....service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from ....service_api.wire.frame import FRAME_ALIGNMENT
from .log_columns import END_POSITION, IS_DATA, check_columns, has_valid_checksum
from .sql import DataFrame, sql

BLOCK_LENGTH_BYTES: Final = 1 << 20
BLOCK_LIMIT: Final = 4096
"""Blocks that differ, up to which each is looked at by itself; with more, all between the first and the last are."""

COMPARED: Final = (
    *("frame_length", "version", "flags", "type", "term_offset", "session_id", "stream_id", "term_id"),
    *("reserved_value", "payload"),
)
"""What the frames of two members have in common at each position: all that is in the file."""

_LOOKED_AT_BYTES: Final = 1 << 14
_LOOKED_AT_OF: Final = 64
"""CRC-32 is looked for in the frames of the first 16 KiB of a block, and in one of 64 of the others."""
_RARELY_OF_BYTES: Final = 1 << 20
_RARELY_BYTES: Final = 1 << 9
_SEGMENT_BEGIN_BYTES: Final = 1 << 16
"""CRC-32C, which is slow here, is looked for in the frames of the first 512 bytes of each MiB, and in those at whole
64 KiB: any log begins there."""


@dataclass(slots=True, frozen=True, kw_only=True)
class BlockComparison:
    """What the digests of two logs say. The positions of a log without frames are None."""

    start_a: int | None
    stop_a: int | None
    start_b: int | None
    stop_b: int | None
    checksum_a: ChecksumKind | None
    """What its frames carry; None if they carry none."""
    checksum_b: ChecksumKind | None
    first_block: int | None
    """The first block that differs; None if none does."""
    last_block: int | None
    blocks: list[int] | None
    """All that differ, in order; None if they are more than `BLOCK_LIMIT`."""
    names: list[str]
    """The columns that count."""

    @property
    def common(self) -> tuple[int, int] | None:
        """The range of positions that both have; None if there is none."""
        if self.start_a is None or self.stop_a is None or self.start_b is None or self.stop_b is None:
            return None
        start, stop = max(self.start_a, self.start_b), min(self.stop_a, self.stop_b)
        return (start, stop) if start < stop else None


def block_number(block_length_bytes: int) -> str:
    """The block that a frame begins in."""
    return f"CAST(floor(position / {block_length_bytes}) AS BIGINT)"


def digest_blocks(log: DataFrame, ignore: Sequence[str], block_length_bytes: int) -> DataFrame:
    """One row for each block: the digest of its frames, how many they are, and where they begin and end.

    The session ids have a digest of their own, since they may be checksums; looked_at_ and right_ with the kind count
    the frames whose checksum was computed, and those that have it.

    Raises:
        ConfigurationError: a column is missing, there is none of that name to ignore, or blocks without a length.
    """
    unknown = [name for name in ignore if name not in COMPARED]
    if unknown:
        raise ConfigurationError(f"no such column: ignore={unknown[0]!r} expected some of {', '.join(COMPARED)}")
    if block_length_bytes < FRAME_ALIGNMENT:
        raise ConfigurationError(f"too short a block: block_length_bytes={block_length_bytes} expected 32 or more")
    names = [name for name in COMPARED if name not in ignore]
    check_columns(log, "divergence", "position", "frame_length", *names)
    has_crc32, has_crc32c = (has_valid_checksum(log, kind) for kind in (ChecksumKind.CRC32, ChecksumKind.CRC32C))
    # A log has one kind: where a frame has the first one, the second, which is slow, is not computed.
    has_kind = {
        ChecksumKind.CRC32: has_crc32,
        ChecksumKind.CRC32C: f"CASE WHEN {has_crc32} THEN FALSE ELSE {has_crc32c} END",
    }
    is_looked_at = dict.fromkeys(KNOWN_CHECKSUMS, "FALSE")
    if {"type", "session_id", "payload"} <= set(names):
        is_near = f"position % {block_length_bytes} < {_LOOKED_AT_BYTES}"
        is_rare = f"(position % {_RARELY_OF_BYTES} < {_RARELY_BYTES} OR position % {_SEGMENT_BEGIN_BYTES} = 0)"
        is_looked_at = {
            ChecksumKind.CRC32: f"({IS_DATA} AND ({is_near} OR xxhash64(position) % {_LOOKED_AT_OF} = 0))",
            ChecksumKind.CRC32C: f"({IS_DATA} AND {is_rare})",
        }
    counts = ", ".join(
        f"count(CASE WHEN {is_looked_at[kind]} THEN 1 END) AS looked_at_{kind}, "
        f"count(CASE WHEN {is_looked_at[kind]} THEN CASE WHEN {has_kind[kind]} THEN 1 END END) AS right_{kind}"
        for kind in KNOWN_CHECKSUMS
    )
    contents = ", ".join(name for name in names if name != "session_id")
    return sql(
        f"""
        SELECT {block_number(block_length_bytes)} AS block, bit_xor(xxhash64((position, {contents}))) AS digest,
            bit_xor(xxhash64((position, {"session_id" if "session_id" in names else 0}))) AS session_digest,
            count(*) AS frames, min(position) AS start_position, max({END_POSITION}) AS stop_position, {counts}
        FROM log
        GROUP BY 1
        """,
        log=log,
    )


def compare_digests(digest_a: DataFrame, digest_b: DataFrame, ignore: Sequence[str]) -> BlockComparison:
    """Run the comparison of two logs' digests, and say what came of it in the range that both have.

    All rows come together in one task: there is one for each block. Where the logs have checksums of two kinds, or one
    has none, the session ids do not count.
    """
    names = [f"{count}_{kind}" for count in ("right", "looked_at") for kind in KNOWN_CHECKSUMS]
    counts = ", ".join(f"{side}.{name} AS {name}_{side}" for name in names for side in "ab")
    has_kind = ", ".join(
        f"2 * sum(right_{kind}_{side}) > sum(looked_at_{kind}_{side}) AS has_{kind}_{side}"
        for kind in KNOWN_CHECKSUMS
        for side in "ab"
    )
    (facts,) = sql(
        f"""
        SELECT min(start_a) AS start_a, min(start_b) AS start_b, max(stop_a) AS stop_a, max(stop_b) AS stop_b,
            {has_kind}, {_blocks("by_contents")}, {_blocks("by_all")}
        FROM (
            SELECT *, CASE WHEN is_common AND contents_differ THEN block END AS by_contents,
                CASE WHEN is_common AND (contents_differ OR sessions_differ) THEN block END AS by_all
            FROM (
                SELECT *, greatest(stop_a, stop_b) > greatest(min(start_a) {_OF_ALL}, min(start_b) {_OF_ALL})
                    AND least(start_a, start_b) < least(max(stop_a) {_OF_ALL}, max(stop_b) {_OF_ALL}) AS is_common
                FROM (
                    SELECT block, a.start_position AS start_a, b.start_position AS start_b,
                        a.stop_position AS stop_a, b.stop_position AS stop_b, {counts},
                        (a.digest IS DISTINCT FROM b.digest OR a.frames IS DISTINCT FROM b.frames) AS contents_differ,
                        a.session_digest IS DISTINCT FROM b.session_digest AS sessions_differ
                    FROM digest_a AS a
                    FULL OUTER JOIN digest_b AS b USING (block)
                )
            )
        )
        """,
        digest_a=digest_a,
        digest_b=digest_b,
    ).collect()
    kind_a, kind_b = (next((kind for kind in KNOWN_CHECKSUMS if facts[f"has_{kind}_{side}"]), None) for side in "ab")
    is_mixed = kind_a is not kind_b
    which = "by_contents" if is_mixed else "by_all"
    left_out = {*ignore, "session_id"} if is_mixed else {*ignore}
    numbers = facts[f"{which}_numbers"]
    return BlockComparison(
        **{name: facts[name] for name in ("start_a", "stop_a", "start_b", "stop_b")},
        checksum_a=kind_a,
        checksum_b=kind_b,
        first_block=facts[f"{which}_first"],
        last_block=facts[f"{which}_last"],
        blocks=numbers if len(numbers) <= BLOCK_LIMIT else None,
        names=[name for name in COMPARED if name not in left_out],
    )


_OF_ALL: Final = "OVER (PARTITION BY 0)"


def _blocks(name: str) -> str:
    """The blocks in a column: the first, the last, and the numbers of up to one more than `BLOCK_LIMIT`."""
    return f"""min({name}) AS {name}_first, max({name}) AS {name}_last,
            slice(sort_array(collect_list({name})), 1, {BLOCK_LIMIT + 1}) AS {name}_numbers"""

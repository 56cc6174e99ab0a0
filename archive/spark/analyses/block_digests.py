"""Digests of blocks of a log: they are compared first, so that only blocks that differ are compared by frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....service_api.errors import ConfigurationError
from ....service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from ....service_api.wire.frame import FRAME_ALIGNMENT
from .engine import Column, DataFrame, F, Window
from .log_columns import check_columns, end_position, has_valid_checksum, is_data

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


def block_number(block_length_bytes: int) -> Column:
    """The block that a frame begins in."""
    return F.floor(F.col("position") / F.lit(block_length_bytes))


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
    is_looked_at = dict.fromkeys(KNOWN_CHECKSUMS, F.lit(False))
    if {"type", "session_id", "payload"} <= set(names):
        position = F.col("position")
        is_near = position % block_length_bytes < _LOOKED_AT_BYTES
        is_rare = (position % _RARELY_OF_BYTES < _RARELY_BYTES) | (position % _SEGMENT_BEGIN_BYTES == 0)
        is_looked_at = {
            ChecksumKind.CRC32: is_data() & (is_near | (F.xxhash64("position") % _LOOKED_AT_OF == 0)),
            ChecksumKind.CRC32C: is_data() & is_rare,
        }
    # A log has one kind: where a frame has the first one, the second, which is slow, is not computed.
    has_other = F.when(has_valid_checksum(ChecksumKind.CRC32), False).otherwise(has_valid_checksum(ChecksumKind.CRC32C))
    has_kind = {ChecksumKind.CRC32: has_valid_checksum(ChecksumKind.CRC32), ChecksumKind.CRC32C: has_other}
    contents = [name for name in names if name != "session_id"]
    session_id = F.col("session_id") if "session_id" in names else F.lit(0)
    return log.groupBy(block_number(block_length_bytes).alias("block")).agg(
        F.bit_xor(F.xxhash64("position", *contents)).alias("digest"),
        F.bit_xor(F.xxhash64("position", session_id)).alias("session_digest"),
        F.count(F.lit(1)).alias("frames"),
        F.min("position").alias("start"),
        F.max(end_position()).alias("stop"),
        *(F.count_if(is_looked_at[kind]).alias(f"looked_at_{kind}") for kind in KNOWN_CHECKSUMS),
        *(F.count_if(F.when(is_looked_at[kind], has_kind[kind])).alias(f"right_{kind}") for kind in KNOWN_CHECKSUMS),
    )


def compare_digests(digest_a: DataFrame, digest_b: DataFrame, ignore: Sequence[str]) -> BlockComparison:
    """Run the comparison of two logs' digests, and say what came of it in the range that both have.

    All rows come together in one task: there is one for each block. Where the logs have checksums of two kinds, or one
    has none, the session ids do not count.
    """
    a, b = (
        digest.select("block", *(F.col(name).alias(f"{name}_{side}") for name in digest.columns if name != "block"))
        for digest, side in ((digest_a, "a"), (digest_b, "b"))
    )
    everywhere = Window.partitionBy(F.lit(0))
    begins = F.greatest(F.min("start_a").over(everywhere), F.min("start_b").over(everywhere))
    ends = F.least(F.max("stop_a").over(everywhere), F.max("stop_b").over(everywhere))
    is_common = (F.greatest("stop_a", "stop_b") > F.col("begins")) & (F.least("start_a", "start_b") < F.col("ends"))
    contents_differ = ~_same("digest") | ~_same("frames")
    row = (
        a.join(b, "block", "full_outer")
        .withColumns({"begins": begins, "ends": ends})
        .withColumn("is_common", is_common)
        .agg(
            *(F.min(f"start_{side}").alias(f"start_{side}") for side in "ab"),
            *(F.max(f"stop_{side}").alias(f"stop_{side}") for side in "ab"),
            *(
                (2 * F.sum(f"right_{kind}_{side}") > F.sum(f"looked_at_{kind}_{side}")).alias(f"has_{kind}_{side}")
                for kind in KNOWN_CHECKSUMS
                for side in "ab"
            ),
            _blocks(F.col("is_common") & contents_differ).alias("by_contents"),
            _blocks(F.col("is_common") & (contents_differ | ~_same("session_digest"))).alias("by_all"),
        )
        .first()
    )
    assert row is not None  # an aggregate without groups has a row
    facts: dict[str, Any] = row.asDict(recursive=True)
    kind_a, kind_b = (next((kind for kind in KNOWN_CHECKSUMS if facts[f"has_{kind}_{side}"]), None) for side in "ab")
    is_mixed = kind_a is not kind_b
    blocks = facts["by_contents" if is_mixed else "by_all"]
    left_out = {*ignore, "session_id"} if is_mixed else {*ignore}
    return BlockComparison(
        **{name: facts[name] for name in ("start_a", "stop_a", "start_b", "stop_b")},
        checksum_a=kind_a,
        checksum_b=kind_b,
        first_block=blocks["first"],
        last_block=blocks["last"],
        blocks=blocks["numbers"] if len(blocks["numbers"]) <= BLOCK_LIMIT else None,
        names=[name for name in COMPARED if name not in left_out],
    )


def _blocks(condition: Column) -> Column:
    """The blocks of which the condition is true: the first, the last, and the numbers."""
    block = F.when(condition, F.col("block"))
    numbers = F.slice(F.sort_array(F.collect_list(block)), 1, BLOCK_LIMIT + 1)
    return F.struct(F.min(block).alias("first"), F.max(block).alias("last"), numbers.alias("numbers"))


def _same(name: str) -> Column:
    """Whether both logs have the same in a block; a block that one lacks is not."""
    return F.col(f"{name}_a").eqNullSafe(F.col(f"{name}_b"))

"""The rules for the frames of a log, as a member makes them of its settings."""

from __future__ import annotations

from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame_rules import FrameRules


def log_rules(
    *,
    initial_term_id: int = 0,
    term_length_bytes: int = 64 << 10,
    mtu_length_bytes: int = 1408,
    checksummed: bool = True,
) -> FrameRules:
    return FrameRules(
        initial_term_id=initial_term_id,
        term_length_bytes=term_length_bytes,
        mtu_length_bytes=mtu_length_bytes,
        stream_id=LOG_STREAM_ID,
        checksummed=checksummed,
        is_cluster_log=True,
    )

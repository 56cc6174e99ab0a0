"""Sizes of messages, the summary, and whether a log is whole: held against the truth beside the Aeron samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import mean

import pytest
from pyspark.sql import DataFrame

from tests.spark.engines import ENGINES, rows_where, with_changed
from tests.spark.log_truth import LogTruth, rows
from trimaran.archive.spark.analyses import integrity, payload_histogram, payload_sizes, summary
from trimaran.service_api.errors import ConfigurationError

SINGLE = "single-node-node0"
FAILOVER = "three-node-failover-node0"


def aligned(length: int) -> int:
    return (length + 31) // 32 * 32


def test_the_sizes_of_messages_are_those_of_the_truth(sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(SINGLE)
    padding = [frame["frame_length"] for frame in truth.frames if frame["type"] == 0]

    found = {row["message"]: row for row in rows(payload_sizes(sample_log(SINGLE)))}

    assert found.keys() == {entry.name for entry in truth.entries} | {"(padding)"}
    for name in {entry.name for entry in truth.entries}:
        entries, row = truth.of(name), found[name]
        lengths = sorted(entry.message["length"] for entry in entries)
        frames = [frame for entry in entries for frame in entry.frames if frame["type"] == 1]
        log_bytes = sum(aligned(frame["frame_length"]) for frame in frames)
        assert (row["messages"], row["frames"], row["message_bytes"]) == (len(entries), len(frames), sum(lengths))
        assert (row["length_min"], row["length_max"]) == (lengths[0], lengths[-1])
        assert row["length_mean"] == pytest.approx(mean(lengths))
        assert row["length_p90"] == lengths[-(-9 * len(lengths) // 10) - 1]
        assert row["log_bytes"] == log_bytes
        assert row["overhead_share"] == pytest.approx(1 - sum(lengths) / log_bytes)
    assert found["(padding)"]["frames"] == len(padding)
    assert found["(padding)"]["log_bytes"] == sum(padding)
    assert found["(padding)"]["overhead_share"] == 1


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_sizes_can_be_told_by_session(sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(SINGLE)
    expected = Counter(entry.fields.get("clusterSessionId") for entry in truth.entries)

    found = rows(payload_sizes(sample_log(SINGLE), by=["cluster_session_id"]))

    messages = {row["cluster_session_id"]: row["messages"] for row in found if row["messages"]}
    assert messages == expected
    with pytest.raises(ConfigurationError, match="by='colour' expected template_id"):
        payload_sizes(sample_log(SINGLE), by=["colour"])


@pytest.mark.parametrize("bin_bytes", [None, 100])
def test_a_histogram_counts_every_message_once(bin_bytes: int | None, sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(SINGLE)
    lengths = [entry.message["length"] for entry in truth.entries]
    first = [
        1 << length.bit_length() - 1 if bin_bytes is None else length // bin_bytes * bin_bytes for length in lengths
    ]

    found = rows(payload_histogram(sample_log(SINGLE), by=(), bin_bytes=bin_bytes))

    assert {row["from_length"]: row["messages"] for row in found} == Counter(first)
    assert sum(row["message_bytes"] for row in found) == sum(lengths)
    assert all(
        row["to_length"] == (row["from_length"] * 2 if bin_bytes is None else row["from_length"] + 100) for row in found
    )


@pytest.mark.parametrize("name", [SINGLE, "checksummed-node0"])
def test_the_summary_is_that_of_the_truth(name: str, sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(name)
    names = Counter(entry.name for entry in truth.entries)
    sent = [entry.session for entry in truth.of("SessionMessageHeader")]
    data = [frame["frame_length"] for frame in truth.frames if frame["type"] == 1]

    (found,) = rows(summary(sample_log(name)))

    assert (found["start_position"], found["stop_position"]) == (0, truth.recording["scan_ended"]["position"])
    assert (found["frames"], found["messages"]) == (len(truth.frames), len(truth.messages))
    assert (found["first_timestamp"], found["last_timestamp"]) == (
        truth.time(truth.entries[0]),
        max(truth.time(entry) for entry in truth.entries),
    )
    assert found["terms"] == names["NewLeadershipTermEvent"]
    assert found["client_messages"] == sum(service is None for _, service in sent)
    assert found["service_messages"] == sum(service is not None for _, service in sent)
    assert found["sessions"] == found["sessions_opened"] == names["SessionOpenEvent"]
    assert found["sessions_closed"] == names["SessionCloseEvent"]
    assert (found["timers_fired"], found["actions"]) == (names["TimerEvent"], names["ClusterActionRequest"])
    assert found["payload_bytes"] == sum(length - 32 for length in data)
    parts = ("payload_bytes", "header_bytes", "alignment_bytes", "padding_bytes")
    assert sum(found[part] for part in parts) == found["length_bytes"]


def test_nothing_is_wrong_with_a_real_log(sample_log: Callable[[str], DataFrame]) -> None:
    assert rows(integrity(sample_log(FAILOVER))) == []


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_what_is_wrong_with_a_log_is_found_where_it_is(sample_log: Callable[[str], DataFrame]) -> None:
    """Two frames are gone, one is longer than its place, and headers and clocks are wrong here and there."""
    truth = LogTruth(FAILOVER)
    whole = [e for e in truth.entries if len(e.frames) == 1 and e.name == "SessionMessageHeader"]
    gone, longer, term, stream, offset, late, back, kind = whole[10:810:100]
    (parts, *_) = [e for e in truth.entries if sum(f["type"] for f in e.frames) > 1 and e.position > kind.position]
    after = {e.position: truth.entries[i + 1] for i, e in enumerate(truth.entries[:-1])}
    log = with_changed(
        rows_where(sample_log(FAILOVER), f"position not in ({gone.position}, {parts.position})"),
        frame_length=f"if(position = {longer.position}, frame_length + 32, frame_length)",
        term_id=f"if(position = {term.position}, 77, term_id)",
        stream_id=f"if(position = {stream.position}, 7, stream_id)",
        term_offset=f"if(position = {offset.position}, term_offset + 32, term_offset)",
        timestamp=f"if(position = {late.position}, timestamp - interval 1 hour, timestamp)",
        leadership_term_id=f"if(position = {back.position}, -5, leadership_term_id)",
        type=f"if(position = {kind.position}, 5, type)",
    )

    found = {(row["position"], row["finding"]) for row in rows(integrity(log))}

    rest = parts.frames[1]["position"]
    assert {
        (after[gone.position].position, "gap"),
        (after[longer.position].position, "overlap"),
        (term.position, "term_id"),
        (after[term.position].position, "term_id"),
        (stream.position, "stream_id"),
        (after[stream.position].position, "stream_id"),
        (offset.position, "term_offset"),
        (late.position, "timestamp"),
        (back.position, "leadership_term"),
        (kind.position, "type"),
        (rest, "gap"),
    } <= found
    assert {position for position, _ in found} <= {
        *(e.position for e in (term, stream, offset, late, back, kind)),
        *(after[e.position].position for e in (gone, longer, term, stream, offset)),
        rest,
    }

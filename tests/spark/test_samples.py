"""Every directory that a real Aeron left, read by Spark and held against the truth beside it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.interchange.samples import NODES, Sample, sample_of, unpack_all


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("spark-samples")
    yield unpack_all(root)
    shutil.rmtree(root)


IN_THE_SUITE = ("application-crc32c-node0", "single-node-node0", "there-and-back-three-node2")
"""The others are for the campaign; without Spark `tests/unit/archive/spark/test_every_sample.py` reads all of them."""


@pytest.fixture(
    params=[name if name in IN_THE_SUITE else pytest.param(name, marks=pytest.mark.campaign) for name in NODES]
)
def sample(samples: Path, request: pytest.FixtureRequest) -> Sample:
    return sample_of(samples, request.param)


def read(spark: SparkSession, directory: Path, **options: str) -> DataFrame:
    return spark.read.format("aeron_archive").options(**options).load(str(directory))


def valid_recordings(sample: Sample) -> list[dict[str, Any]]:
    """Those that `recordingId=all` reads."""
    states = [entry["header"]["state"] for entry in sample.truth["catalog"]["entries"]]
    pairs = zip(states, sample.truth["recordings"], strict=True)
    return [recording for state, recording in pairs if state == "VALID"]


def test_frames_by_recording_and_type_are_those_of_the_truth(spark: SparkSession, sample: Sample) -> None:
    columns = ("position", "frame_length", "session_id", "term_id")
    frames = read(spark, sample.directory, recordingId="all", columns=f"recording_id,type,{','.join(columns)}")

    rows = frames.groupBy("recording_id", "type").agg(sf.count("*"), *[sf.sum(name) for name in columns]).collect()

    expected = {
        (recording["recording_id"], kind): (len(found), *[sum(frame[name] for frame in found) for name in columns])
        for recording in valid_recordings(sample)
        for kind in (0, 1)
        if (found := [frame for frame in recording["frames"] if frame["type"] == kind])
    }
    assert {tuple(row[:2]): tuple(row[2:]) for row in rows} == expected


def test_messages_by_template_are_those_of_the_truth(spark: SparkSession, sample: Sample) -> None:
    messages = read(spark, sample.directory, recordingId="all", messages="true")

    rows = (
        messages.groupBy("recording_id", "template_id")
        .agg(sf.count("*"), sf.sum("position"), sf.sum(sf.length("payload")))
        .collect()
    )

    expected: Counter[tuple[int, int | None]] = Counter()
    positions, lengths = Counter(expected), Counter(expected)
    for recording in valid_recordings(sample):
        for message in recording["messages"]:
            key = (recording["recording_id"], message.get("template_id"))
            expected[key] += 1
            positions[key] += message["position"]
            lengths[key] += message["length"]
    assert {tuple(row[:2]): tuple(row[2:]) for row in rows} == {
        key: (expected[key], positions[key], lengths[key]) for key in expected
    }

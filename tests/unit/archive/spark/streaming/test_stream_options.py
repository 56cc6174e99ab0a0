"""The options of a stream: safe without any, and what makes no sense for one is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.archive.spark.streaming.stream_options import DEFAULT_MAX_BATCH_BYTES, parse_stream_options
from trimaran.archive.spark.streaming.stream_planner import UNBOUNDED
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.tls import TlsSettings


def test_only_what_is_known_to_be_committed_is_shown_unless_told() -> None:
    options = parse_stream_options({"path": "data/node-0"})

    assert options.settings.committed_position is None
    assert options.settings.directories == (Path("data/node-0"),)
    assert options.settings.starting_position == "earliest"
    assert options.max_batch_bytes == DEFAULT_MAX_BATCH_BYTES


def test_options_are_read_in_any_case_as_spark_hands_them_over() -> None:
    options = parse_stream_options(
        {
            "path": "a, b ,file:/c",
            "commitfrom": "h:1,h:2",
            "STARTINGPOSITION": "Latest",
            "maxBytesPerTrigger": "4m",
            "messages": "true",
            "splitbytes": "1m",
            "mode": "failfast",
            "checksums": "off",
        }
    )

    settings = options.settings
    assert settings.directories == (Path("a"), Path("b"), Path("/c"))
    assert settings.commit_from == (Endpoint("h", 1), Endpoint("h", 2))
    assert (settings.starting_position, options.max_batch_bytes, settings.split_bytes) == ("latest", 4 << 20, 1 << 20)
    assert (settings.is_by_message, settings.checksums) == (True, False)


def test_members_are_asked_over_tls_with_the_options_or_with_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"tlsAuthorities": "ca.pem", "tlsCertificate": "c.pem", "tlsKey": "k"}
    given = {"path": "a", **files, "clusterId": "0000000000000007"}
    settings = parse_stream_options(given).settings
    assert settings.tls == TlsSettings(authorities="ca.pem", certificate="c.pem", key="k")
    assert settings.cluster_id == 7
    assert parse_stream_options({"path": "a"}).settings.tls is None

    monkeypatch.setenv("TRIMARAN_TLS_AUTHORITIES", "system")
    assert parse_stream_options({"path": "a"}).settings.tls == TlsSettings(authorities="system")


@pytest.mark.parametrize(("text", "expected"), [("true", None), ("false", UNBOUNDED), ("4096", 4096)])
def test_committed_says_how_far_the_stream_goes(text: str, expected: int | None) -> None:
    assert parse_stream_options({"path": "a", "committed": text}).settings.committed_position == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no path"),
        ({"path": "a,a"}, "path='a,a'"),
        ({"path": "s3://bucket/a"}, "path='s3://bucket/a'"),
        ({"path": "a", "startPosition": "0"}, "option='startposition' expected startingPosition"),
        ({"path": "a", "stopPosition": "64"}, "option='stopposition' expected committed=POSITION"),
        ({"path": "a", "exceptPositions": "0:0-64"}, "option='exceptpositions'"),
        ({"path": "a", "colour": "red"}, "option='colour'"),
        ({"path": "a", "mode": "PERMISSIVE"}, "mode=PERMISSIVE"),
        ({"path": "a", "recordingId": "all"}, "recordingId=all"),
        ({"path": "a,b", "recordingId": "3"}, "recordingId=3 with 2 directories"),
        ({"path": "a", "startingPosition": "soon"}, "startingPosition: 'soon'"),
        ({"path": "a", "startingPosition": "33"}, "startingPosition: '33'"),
        ({"path": "a", "maxBytesPerTrigger": "many"}, "maxBytesPerTrigger: 'many' expected"),
        ({"path": "a", "commitFrom": "host"}, "endpoint='host'"),
        ({"path": "a", "commitFrom": "h:1", "committed": "false"}, "committed=false with commitFrom"),
    ],
)
def test_what_makes_no_stream_is_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_stream_options(options)
    assert said in str(raised.value)

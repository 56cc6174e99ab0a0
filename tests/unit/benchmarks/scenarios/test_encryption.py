"""What TLS costs: how rounds are put together and judged, and one small run from end to end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trimaran.benchmarks.scenarios.encryption import (
    CATCHUP,
    PLAIN,
    TLS,
    EncryptionParameters,
    _row,
    cells,
    encryption_rows,
    run,
)
from trimaran.service_api.errors import ConfigurationError


def echo_report(rate: float, p50_us: float) -> dict[str, Any]:
    return {"throughput_msgs_per_s": rate, "p50_us": p50_us, "cpu_seconds_per_100k": {"member-0": 0.2, "client-0": 0.1}}


@pytest.mark.parametrize(
    ("name", "tls_rate", "tls_p50_us", "reached"),
    [
        ("echo, 1,024 in flight", 70_000, 900, True),
        ("echo, 1,024 in flight", 69_900, 900, False),
        ("echo, 1 in flight", 10, 580, True),
        ("echo, 1 in flight", 10, 581, False),
        ("echo, 64 in flight", 10, 900, None),
    ],
)
def test_an_echo_is_held_against_the_target_of_its_depth(
    name: str, tls_rate: float, tls_p50_us: float, reached: bool | None
) -> None:
    plain = [echo_report(rate, 500) for rate in (90_000, 100_000, 300_000)]
    row = _row(name, {PLAIN: plain, TLS: [echo_report(tls_rate, tls_p50_us)]})

    assert row["reached"] is reached
    assert row["share"] == round(tls_rate / 100_000, 3)
    assert cells(row)[0] == "plain text 100,000/s (90,000 to 300,000), p50 500 µs, CPU 3.00 µs"


def test_a_catch_up_is_held_against_its_own_target() -> None:
    reports = {PLAIN: [{"megabytes_per_s": 200.0}], TLS: [{"megabytes_per_s": 99.0}]}
    row = _row(CATCHUP, reports)

    assert cells(row)[2:] == ["49.5% of the rate", "at least 50% of the rate: not reached"]


def test_both_are_measured_on_clusters_of_their_own(tmp_path: Path) -> None:
    parameters = EncryptionParameters(rounds=1, depths=(8,), messages=400, missed_mib=0, file_sync_level=0)
    report = run(parameters, directory=tmp_path)

    (row,) = report["rows"]
    assert row["rates"][PLAIN] != row["rates"][TLS]
    assert min(*row["rates"][PLAIN], *row["rates"][TLS]) > 0
    assert [*encryption_rows(report)] == ["echo, 8 in flight"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rounds": 0}, "rounds=0"),
        ({"messages": 49}, "messages=49"),
        ({"depths": ()}, "depths"),
        ({"depths": (0,)}, "0"),
    ],
    ids=["rounds", "messages", "no-depth", "depth"],
)
def test_what_makes_no_run_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(expected)):
        EncryptionParameters(**changes)

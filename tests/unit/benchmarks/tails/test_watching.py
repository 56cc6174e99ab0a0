"""Histograms of members' metrics are told as what was counted between two pages."""

from __future__ import annotations

from trimaran.benchmarks.tails.watching import counted_between


def page(*counts: tuple[str, str, int]) -> str:
    lines = [f'a_seconds_bucket{{le="{bound}",stage="{stage}"}} {count}' for stage, bound, count in counts]
    return "\n".join(["# TYPE a_seconds histogram", *lines, ""])


def test_only_what_was_counted_meanwhile_is_told() -> None:
    before = page(("sync", "0.001", 5), ("sync", "0.002", 6), ("sync", "+Inf", 6), ("append", "+Inf", 1))
    after = page(
        *(("sync", "0.001", 205), ("sync", "0.002", 207), ("sync", "+Inf", 207)),
        *(("append", "0.001", 0), ("append", "+Inf", 1)),
        *(("egress", "0.001", 0), ("egress", "0.002", 0), ("egress", "+Inf", 3)),
    )

    found = counted_between(before, after, "a_seconds", "stage")

    assert found == {
        "sync": {"count": 201, "p99_ms": 1.0, "longest_ms": 2.0},
        "egress": {"count": 3, "p99_ms": 2.0, "longest_ms": 2.0},
    }

"""The pause before what failed is tried again."""

from __future__ import annotations

from trimaran.cluster.core.vocabulary.back_off import back_off_ns


def test_pause_doubles_with_each_failure_up_to_the_limit() -> None:
    pauses = [back_off_ns(count, first_ns=50, limit_ns=700) for count in range(6)]

    assert pauses == [50, 100, 200, 400, 700, 700]


def test_pause_after_very_many_failures_is_the_limit() -> None:
    assert back_off_ns(1 << 40, first_ns=1, limit_ns=1_000) == 1_000

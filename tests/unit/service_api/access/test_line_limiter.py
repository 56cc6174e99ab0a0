"""The first of a kind has a line at once, the others a number, and the kinds are bounded."""

from __future__ import annotations

from trimaran.service_api.access.line_limiter import LineLimiter


def test_the_first_of_each_kind_is_told_and_then_one_in_an_interval_with_the_number() -> None:
    limiter = LineLimiter[str](interval_ns=10)

    told = [(kind, now_ns, limiter.count(kind, now_ns)) for now_ns in range(0, 25, 5) for kind in ("a", "a", "b")]

    assert [each for each in told if each[2] is not None] == [
        ("a", 0, 1),
        ("b", 0, 1),
        ("a", 10, 4),
        ("b", 10, 2),
        ("a", 20, 4),
        ("b", 20, 2),
    ]


def test_what_was_counted_can_be_taken_once_an_interval_has_passed() -> None:
    limiter = LineLimiter[str](interval_ns=10)
    for _ in range(3):
        limiter.count("a", 0)
    limiter.count("b", 0)

    assert limiter.take_untold(9) == []
    assert limiter.take_untold(10) == [("a", 2)]
    assert limiter.take_untold(20) == []


def test_a_kind_that_was_quiet_for_an_interval_can_be_forgotten() -> None:
    limiter = LineLimiter[str](interval_ns=10)
    limiter.count("quiet", 0)
    limiter.count("noisy", 0)
    limiter.count("noisy", 1)

    limiter.forget_quiet(10)

    assert "quiet" not in limiter
    assert "noisy" in limiter
    assert limiter.count("quiet", 10) == 1


def test_beyond_the_limit_kinds_make_room_when_they_are_quiet_and_else_count_as_one() -> None:
    limiter = LineLimiter[int](interval_ns=10, kind_limit=2)

    assert [limiter.count(kind, 0) for kind in range(5)] == [1, 1, 1, None, None]
    assert limiter.take_untold(10) == [(None, 2)]
    assert limiter.count(7, 10) == 1
    assert 7 in limiter
    assert len(limiter) <= 3


def test_a_clock_that_is_set_back_silences_nothing() -> None:
    limiter = LineLimiter[str](interval_ns=10)
    limiter.count("a", 1_000)

    assert limiter.count("a", 0) == 1

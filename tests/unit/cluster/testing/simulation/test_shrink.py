"""A failing run is made smaller without becoming another failure."""

from __future__ import annotations

from collections.abc import Callable

from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES
from trimaran.cluster.testing.simulation.run import Failure, Options, RunOutcome
from trimaran.cluster.testing.simulation.shrink import shrink

RULE = "one leader per term"


def outcome(options: Options, *, is_broken: bool, rule: str = RULE, member_count: int = 5) -> RunOutcome:
    """What a run with these options gives: every kind that is not left out strikes."""
    result = RunOutcome(17, options, member_count=options.member_count or member_count)
    result.fired = {name: int(name not in options.without) for name in KIND_NAMES}
    if is_broken:
        result.failure = Failure(rule, f"{rule}: term=3", 1.5)
    return result


def breaks_if(condition: Callable[[Options], bool]) -> Callable[[Options], RunOutcome]:
    return lambda options: outcome(options, is_broken=condition(options))


def test_only_the_kinds_that_the_failure_needs_are_left() -> None:
    needed = {"kill_leader", "wipe"}
    run = breaks_if(lambda options: not needed & options.without)

    shrunk = shrink(run(Options()), run)

    assert frozenset(KIND_NAMES) - shrunk.outcome.options.without == needed


def test_everything_is_left_out_of_a_failure_that_needs_nothing() -> None:
    run = breaks_if(lambda options: True)

    shrunk = shrink(run(Options()), run)

    assert shrunk.outcome.options == Options(
        member_count=1,
        client_count=0,
        requester_count=0,
        without=frozenset(KIND_NAMES),
        safety_timeouts=0.5,
        operation_limit=0,
    )


def test_members_clients_operations_and_length_are_shrunk_to_what_is_needed() -> None:
    def is_broken(options: Options) -> bool:
        operation_count = 1_000 if options.operation_limit is None else options.operation_limit
        return (
            (options.member_count or 5) >= 3
            and options.client_count >= 2
            and operation_count >= 7
            and options.safety_timeouts >= 4
        )

    run = breaks_if(is_broken)

    options = shrink(run(Options()), run).outcome.options

    assert (options.member_count, options.client_count, options.operation_limit) == (3, 2, 10)
    assert 4 <= options.safety_timeouts < 5


def test_kinds_that_never_fired_are_dropped_in_one_step() -> None:
    def run(options: Options) -> RunOutcome:
        result = outcome(options, is_broken="kill" not in options.without)
        result.fired = {"kill": 2}
        return result

    shrunk = shrink(run(Options()), run)

    kept = [attempt.change for attempt in shrunk.attempts if attempt.is_kept]
    assert f"without {len(KIND_NAMES) - 1} kinds of faults that never fired" in kept
    assert not any(change.startswith("without kill") for change in kept)


def test_kinds_that_fire_no_more_are_dropped_as_soon_as_others_are() -> None:
    def run(options: Options) -> RunOutcome:
        result = outcome(options, is_broken="wipe" not in options.without)
        result.fired = {"wipe": 1} if options.without else dict.fromkeys(KIND_NAMES, 1)
        return result

    shrunk = shrink(run(Options()), run)

    kept = [attempt.change for attempt in shrunk.attempts if attempt.is_kept and attempt.change.startswith("without")]
    assert kept[1].endswith("kinds of faults that never fired")
    assert len(kept) == 2


def test_a_smaller_run_that_breaks_another_rule_is_refused() -> None:
    def run(options: Options) -> RunOutcome:
        return outcome(options, is_broken=True, rule=RULE if options == Options() else "another rule")

    shrunk = shrink(run(Options()), run)

    assert shrunk.outcome.options == Options()
    assert shrunk.kept_count == 0
    assert shrunk.attempts


def test_no_run_is_tried_twice_and_attempts_are_bounded() -> None:
    tried: list[Options] = []

    def run(options: Options) -> RunOutcome:
        tried.append(options)
        return outcome(options, is_broken=not {"kill", "pause", "wipe"} & options.without)

    shrunk = shrink(outcome(Options(), is_broken=True), run, attempt_limit=11)

    assert len(tried) == len(set(tried)) == len(shrunk.attempts) == 11


def test_the_smallest_so_far_is_given_when_time_is_up() -> None:
    run = breaks_if(lambda options: True)
    clock = iter([True, True, False])

    shrunk = shrink(run(Options()), run, has_time=lambda: next(clock))

    assert len(shrunk.attempts) == 2
    assert shrunk.outcome.options.safety_timeouts < Options().safety_timeouts


def test_each_attempt_is_told_as_it_ends() -> None:
    run = breaks_if(lambda options: True)
    told: list[str] = []

    shrunk = shrink(run(Options()), run, on_attempt=lambda attempt: told.append(attempt.change))

    assert told == [attempt.change for attempt in shrunk.attempts]
    assert told[0] == "length 20 to 5"


def test_the_command_replays_the_smaller_run() -> None:
    run = breaks_if(lambda options: "kill" not in options.without)

    options = shrink(run(Options()), run).outcome.options

    flags = options.arguments()
    assert flags[flags.index("--members") + 1] == "1"
    assert flags[flags.index("--length") + 1] == "0.5"
    assert "kill" not in flags[flags.index("--without") + 1].split(",")

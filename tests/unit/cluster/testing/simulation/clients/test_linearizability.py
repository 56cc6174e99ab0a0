"""The two checks of a history, against histories that are known to be valid or wrong, and against brute force."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from random import Random

import pytest

from trimaran.cluster.testing.simulation.clients.history import ClientOperation, History
from trimaran.cluster.testing.simulation.clients.linearizability import (
    SearchVerdict,
    check_linearizability,
    check_log_order,
)
from trimaran.cluster.testing.simulation.clients.register_model import RegisterModel, explained
from trimaran.cluster.testing.simulation.clients.register_operations import (
    APPEND,
    COMPARE_AND_SET,
    FIRE,
    GET,
    PUT,
    WRITE_LATER,
    RegisterOutcome,
    Swap,
    Values,
)

MODEL = RegisterModel()


def operation(
    kind: str,
    argument: Hashable,
    span: tuple[int, int | None],
    *,
    saw: Values | None = None,
    succeeded: bool = True,
    key: int = 0,
    client: int | None = None,
    position: int | None = None,
) -> ClientOperation:
    """An operation; it was acknowledged if it says what it saw."""
    outcome = None if saw is None else RegisterOutcome(succeeded, saw)
    invoked_ns, returned_ns = span
    number = next(_numbers)
    return ClientOperation(
        number, client, key, kind, argument, invoked_ns, returned_ns, saw is not None, outcome, log_position=position
    )


_numbers = itertools.count()


def verdict_of(*operations: ClientOperation) -> SearchVerdict:
    return check_linearizability(operations, MODEL).verdict


def random_history(random: Random, count: int, concurrency: int, *, unknown_rate: float = 0.0) -> list[ClientOperation]:
    """A history of one register that is linearizable: each operation takes effect at a moment of its own."""
    state: Values = ()
    operations: list[ClientOperation] = []
    free_at = [0] * concurrency
    moments: list[tuple[int, int, int]] = []
    for _ in range(count):
        client = min(range(concurrency), key=lambda index: free_at[index])
        begin = free_at[client] + random.randint(1, 10)
        moment = begin + random.randint(0, 100)
        end = moment + random.randint(0, 100)
        free_at[client] = end
        moments.append((moment, begin, end))
    for number, (moment, begin, end) in enumerate(sorted(moments)):
        kind = random.choice((GET, GET, PUT, APPEND, COMPARE_AND_SET))
        value = number + 1
        argument: Hashable = None if kind == GET else value
        if kind == COMPARE_AND_SET:
            argument = Swap(state[-1] if state and random.random() < 0.7 else random.randint(0, count), value)
        made = ClientOperation(number, None, 0, kind, argument, begin, end, True, log_position=32 * number + 32)
        if random.random() < unknown_rate:
            made.returned_ns, made.is_acknowledged, made.log_position = None, False, None
            if random.random() < 0.5:
                state, _ = MODEL.apply(state, made)
        else:
            state, made.outcome = MODEL.apply(state, made)
        assert begin <= moment <= end
        operations.append(made)
    return operations


def with_another_answer(random: Random, operations: Sequence[ClientOperation]) -> list[ClientOperation]:
    """The same history, with one answer taken from another operation."""
    answered = [number for number, some in enumerate(operations) if some.is_acknowledged]
    number, other = random.sample(answered, 2)
    changed = list(operations)
    changed[number] = replace(operations[number], outcome=operations[other].outcome)
    return changed


def is_linearizable_by_force(operations: Sequence[ClientOperation]) -> bool:
    """Try every order of every choice of unanswered operations."""
    certain = [some for some in operations if some.returned_ns is not None]
    doubtful = [some for some in operations if some.returned_ns is None]
    for count in range(len(doubtful) + 1):
        for chosen in itertools.combinations(doubtful, count):
            if any(explains(order) for order in itertools.permutations([*certain, *chosen])):
                return True
    return False


def explains(order: Sequence[ClientOperation]) -> bool:
    state: Values = ()
    latest_ns = -1
    for some in order:
        if some.returned_ns is not None and some.returned_ns < latest_ns:
            return False
        latest_ns = max(latest_ns, some.invoked_ns)
        state, outcome = MODEL.apply(state, some)
        if some.is_acknowledged and outcome != some.outcome:
            return False
    return True


def test_a_stale_read_is_named_with_what_was_around_it() -> None:
    put = operation(PUT, 1, (0, 10), saw=())
    other = operation(GET, None, (15, 40), saw=(1,))
    stale = operation(GET, None, (20, 30), saw=())

    report = check_linearizability([put, other, stale], MODEL)

    (result,) = report.results
    assert result.culprit is stale
    assert result.excerpt.splitlines() == [
        f"key=0 cannot be linearized: {stale}",
        "  an order that explains all that returned earlier ends with",
        f"    {put}",
        f"    {other}",
        "  which leave (1,)",
        "  concurrent with it: 1",
        f"    {other}",
    ]
    assert report.violations == [result.excerpt]


def test_operations_of_one_instant_count_as_concurrent() -> None:
    put = operation(PUT, 1, (0, 10), saw=())
    get = operation(GET, None, (10, 20), saw=())

    assert verdict_of(put, get) is SearchVerdict.LINEARIZABLE


def test_keys_are_independent() -> None:
    right = operation(PUT, 1, (0, 10), saw=(), key=1)
    wrong = operation(GET, None, (0, 10), saw=(9,), key=2)

    report = check_linearizability([right, wrong], MODEL)

    assert [result.verdict for result in report.results] == [
        SearchVerdict.LINEARIZABLE,
        SearchVerdict.NOT_LINEARIZABLE,
    ]
    assert report.verdict is SearchVerdict.NOT_LINEARIZABLE


def test_a_search_beyond_its_limit_is_undecided() -> None:
    operations = random_history(Random(1), 200, 8)

    report = check_linearizability(operations, MODEL, step_limit=100)

    assert (report.verdict, report.undecided_count, report.violations) == (SearchVerdict.UNDECIDED, 1, [])


def test_an_empty_history_is_linearizable() -> None:
    assert verdict_of() is SearchVerdict.LINEARIZABLE


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_answer_is_found_where_nothing_overlaps(seed: int) -> None:
    """There is one order only, so the search and the witness must agree."""
    random = Random(seed)
    operations = with_another_answer(random, random_history(random, 120, 1))
    is_valid = check_log_order(operations, MODEL) == []

    assert verdict_of(*operations) is (SearchVerdict.LINEARIZABLE if is_valid else SearchVerdict.NOT_LINEARIZABLE)


def test_the_search_agrees_with_brute_force_on_every_small_history() -> None:
    verdicts = {SearchVerdict.LINEARIZABLE: 0, SearchVerdict.NOT_LINEARIZABLE: 0}
    for seed in range(600):
        random = Random(seed)
        operations = random_history(random, random.randint(2, 6), random.randint(1, 4), unknown_rate=0.2)
        if sum(some.is_acknowledged for some in operations) > 1 and seed % 4:
            operations = with_another_answer(random, operations)

        verdict = verdict_of(*operations)

        expected = (
            SearchVerdict.LINEARIZABLE if is_linearizable_by_force(operations) else SearchVerdict.NOT_LINEARIZABLE
        )
        assert verdict is expected, f"{seed=} " + "; ".join(map(str, operations))
        verdicts[verdict] += 1
    assert min(verdicts.values()) > 150, verdicts


def test_the_culprit_is_the_first_return_that_brute_force_cannot_explain() -> None:
    found = 0
    for seed in range(300):
        random = Random(seed)
        operations = with_another_answer(random, random_history(random, 5, 3))
        (result,) = check_linearizability(operations, MODEL).results
        if result.culprit is None:
            continue
        end_ns = result.culprit.returned_ns
        assert end_ns is not None

        until = [up_to(some, end_ns) for some in operations if some.invoked_ns <= end_ns]
        before = [up_to(some, end_ns - 1) for some in operations if some.invoked_ns < end_ns]

        assert not is_linearizable_by_force(until)
        assert is_linearizable_by_force(before)
        found += 1
    assert found > 50


def up_to(some: ClientOperation, end_ns: int) -> ClientOperation:
    """The operation with its return only if that was by a time; the answer is a constraint in any case."""
    if some.returned_ns is not None and some.returned_ns <= end_ns:
        return some
    return replace(some, returned_ns=None)


@pytest.mark.parametrize(("count", "concurrency"), [(1_000, 5), (1_000, 10), (5_000, 5)])
def test_histories_of_the_intended_size_are_decided_within_the_limit(count: int, concurrency: int) -> None:
    random = Random(count * concurrency)
    operations = random_history(random, count, concurrency)
    wrong = [*operations, operation(GET, None, (10**9, 10**9 + 1), saw=(-1,))]

    assert verdict_of(*operations) is SearchVerdict.LINEARIZABLE
    assert verdict_of(*wrong) is SearchVerdict.NOT_LINEARIZABLE


# --- the witness


def test_log_order_is_right_where_it_was_made() -> None:
    for seed in range(50):
        assert check_log_order(random_history(Random(seed), 100, 5, unknown_rate=0.0), MODEL) == []


PUT_AT_32 = operation(PUT, 1, (0, 10), saw=(), position=32)


@pytest.mark.parametrize(
    ("operations", "problem"),
    [
        ([PUT_AT_32, operation(GET, None, (0, 10), saw=(1,), position=32)], "two operations at one log position: "),
        # A read that had returned before the write was invoked stands after it in the log, though it saw nothing.
        (
            [
                operation(PUT, 1, (20, 30), saw=(), key=1, position=32),
                operation(GET, None, (0, 10), saw=(), key=2, position=64),
            ],
            "log order against real time: ",
        ),
        (
            [
                operation(APPEND, 1, (0, 10), saw=(2,), client=1, position=64),
                operation(APPEND, 2, (0, 10), saw=(), client=1, position=32),
            ],
            "a client's operations changed places: ",
        ),
        (
            [PUT_AT_32, operation(GET, None, (0, 10), saw=(), position=64)],
            f"in log order the answer is {RegisterOutcome(True, (1,))}",
        ),
    ],
    ids=["one position twice", "real time", "one client", "another answer"],
)
def test_log_order_finds_what_cannot_be(operations: list[ClientOperation], problem: str) -> None:
    (violation,) = check_log_order(operations, MODEL)

    assert problem in violation


# --- what sightings prove


def test_a_write_that_was_shown_takes_its_place_in_the_log() -> None:
    history = History()
    lost = history.invoke(1, 0, PUT, 7, now_ns=10)
    history.give_up(lost)
    get = history.invoke(2, 0, GET, None, now_ns=20)
    history.sight(0, 7, log_position=64, now_ns=30)
    history.acknowledge(get, RegisterOutcome(True, (7,)), log_position=96, now_ns=30)

    operations = explained(history)

    assert [(some.log_position, some.returned_ns, some.is_acknowledged) for some in operations] == [
        (64, 30, False),
        (96, 30, True),
    ]
    assert check_log_order(operations, MODEL) == []
    assert verdict_of(*operations) is SearchVerdict.LINEARIZABLE
    assert history.faults == []


def test_a_timer_writes_between_its_request_and_the_first_sight_of_it() -> None:
    history = History()
    setter = history.invoke(1, 0, WRITE_LATER, 7, now_ns=10)
    history.acknowledge(setter, RegisterOutcome(True, ()), log_position=32, now_ns=20)
    get = history.invoke(1, 0, GET, None, now_ns=30)
    history.sight(0, 7, log_position=64, now_ns=40)
    history.acknowledge(get, RegisterOutcome(True, (7,)), log_position=96, now_ns=40)

    operations = explained(history)

    assert [(some.kind, some.log_position) for some in operations] == [(WRITE_LATER, 32), (GET, 96), (FIRE, 64)]
    assert check_log_order(operations, MODEL) == []
    assert verdict_of(*operations) is SearchVerdict.LINEARIZABLE


def test_a_timer_cannot_have_written_before_an_answer_that_does_not_show_it() -> None:
    history = History()
    setter = history.invoke(1, 0, WRITE_LATER, 7, now_ns=10)
    history.acknowledge(setter, RegisterOutcome(True, ()), log_position=32, now_ns=20)
    for begin_ns, values in ((30, ()), (60, ()), (90, (7,))):
        get = history.invoke(1, 0, GET, None, now_ns=begin_ns)
        for value in values:
            history.sight(0, value, log_position=96, now_ns=begin_ns + 5)
        history.acknowledge(
            get, RegisterOutcome(True, values), log_position=32 + begin_ns // 30 * 32, now_ns=begin_ns + 5
        )

    write = explained(history)[-1]

    assert (write.kind, write.invoked_ns, write.returned_ns) == (FIRE, 60, 95)


def test_a_timer_that_wrote_before_it_was_set_is_a_fault() -> None:
    history = History()
    setter = history.invoke(1, 0, WRITE_LATER, 7, now_ns=10)
    history.sight(0, 7, log_position=32, now_ns=20)
    history.acknowledge(setter, RegisterOutcome(True, (7,)), log_position=64, now_ns=20)

    explained(history)

    assert len(history.faults) == 1
    assert history.faults[0].endswith("its timer wrote at 32")


def test_a_value_shown_at_two_places_is_a_fault() -> None:
    history = History()
    history.sight(0, 7, log_position=32, now_ns=20)
    history.sight(0, 7, log_position=64, now_ns=20)

    assert history.faults == ["key=0 value=7 was shown as written at 32 and at 64"]


def test_a_value_that_nobody_wrote_is_a_fault() -> None:
    history = History()
    history.sight(0, 7, log_position=32, now_ns=20)

    explained(history)

    assert history.faults == ["key=0 value=7 was shown, and nobody wrote it"]


def test_an_answer_that_disagrees_with_a_sighting_is_a_fault() -> None:
    history = History()
    put = history.invoke(1, 0, PUT, 7, now_ns=10)
    history.acknowledge(put, RegisterOutcome(True, ()), log_position=32, now_ns=20)
    history.sight(0, 7, log_position=64, now_ns=30)

    explained(history)

    assert len(history.faults) == 1
    assert history.faults[0].endswith("shown as written at 64")


def test_an_unanswered_write_that_nobody_saw_is_left_out_unless_somebody_expects_it() -> None:
    history = History()
    for value in (7, 8):
        history.give_up(history.invoke(1, 0, PUT, value, now_ns=10))
    swap = history.invoke(1, 0, COMPARE_AND_SET, Swap(8, 9), now_ns=20)
    history.acknowledge(swap, RegisterOutcome(False, ()), log_position=96, now_ns=30)

    assert [some.argument for some in explained(history)] == [8, Swap(8, 9)]


def test_leaving_out_what_nobody_saw_changes_no_verdict() -> None:
    """Against brute force on all of the operations."""
    verdicts = []
    for seed in range(400):
        random = Random(seed)
        operations = random_history(random, random.randint(3, 6), 3, unknown_rate=0.5)
        if sum(some.is_acknowledged for some in operations) > 1 and seed % 2:
            operations = with_another_answer(random, operations)

        verdict = verdict_of(*explained(as_history(operations)))

        assert (verdict is SearchVerdict.LINEARIZABLE) == is_linearizable_by_force(operations), seed
        verdicts.append(verdict)
    assert min(map(verdicts.count, (SearchVerdict.LINEARIZABLE, SearchVerdict.NOT_LINEARIZABLE))) > 50


def as_history(operations: Sequence[ClientOperation]) -> History:
    """A history of these operations with the sightings that their answers are."""
    history = History()
    history.operations.extend(operations)
    answered = [some for some in operations if some.returned_ns is not None]
    for some in sorted(answered, key=lambda each: each.returned_ns or 0):
        assert isinstance(some.outcome, RegisterOutcome)
        for value in some.outcome.values:
            history.sight(some.key, value, log_position=32 * value, now_ns=some.returned_ns or 0)
    return history

"""The service of the campaign and its oracle are two programs that say the same."""

from __future__ import annotations

from random import Random

import pytest

from trimaran.benchmarks.chaos.models import ChaosModel, ObjectState, object_key
from trimaran.benchmarks.chaos.service import (
    ACCOUNT_COUNT,
    ChaosAnswer,
    ChaosOperation,
    ChaosOperationKind,
    ChaosService,
)
from trimaran.cluster.testing.simulation.clients.history import ClientOperation


@pytest.mark.parametrize("seed", range(5))
def test_service_and_model_answer_the_same(seed: int) -> None:
    random, service, model = Random(seed), ChaosService(), ChaosModel()
    states: dict[tuple[str, int], ObjectState] = {}

    for number in range(1, 400):
        operation = _draw(random, number)
        key = object_key(operation)
        answer = ChaosAnswer.decode(service.run(operation.encode()))
        asked = ClientOperation(number, None, key, "", operation, invoked_ns=0)
        states[key], expected = model.apply(states.get(key, model.initial_state()), asked)

        assert answer.outcome == expected, operation


def test_an_operation_is_what_was_encoded() -> None:
    operation = ChaosOperation(3, 4, ChaosOperationKind.TRANSFER, 0, 1, 2, 300)

    assert ChaosOperation.decode(operation.encode()) == operation


def test_what_is_no_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="too short"):
        ChaosOperation.decode(b"short")


def test_a_lost_append_shows_in_the_next_answer() -> None:
    service, other = ChaosService(), ChaosService()
    for number in (1, 2, 3):
        service.run(ChaosOperation(1, number, ChaosOperationKind.APPEND, 0, number).encode())
        if number != 2:
            other.run(ChaosOperation(1, number, ChaosOperationKind.APPEND, 0, number).encode())

    assert service.state_hash() != other.state_hash()


def _draw(random: Random, number: int) -> ChaosOperation:
    kind = random.choice([kind for kind in ChaosOperationKind if kind is not ChaosOperationKind.LONG_ANSWER])
    if kind is ChaosOperationKind.TRANSFER:
        source, target = random.sample(range(ACCOUNT_COUNT), 2)
        return ChaosOperation(1, number, kind, 0, source, target, random.randint(1, 900))
    if kind in (ChaosOperationKind.NEXT_ID, ChaosOperationKind.BALANCES):
        return ChaosOperation(1, number, kind)
    return ChaosOperation(1, number, kind, random.randrange(2), random.randrange(4), number)

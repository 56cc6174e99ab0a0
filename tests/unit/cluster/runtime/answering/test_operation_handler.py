"""What a cluster is asked to do, and what its consensus module is asked for."""

from __future__ import annotations

import pytest

from trimaran.cluster.documents.operations import Operation
from trimaran.cluster.runtime.answering.operation_handler import _TOGGLES


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.name)
def test_every_operation_is_the_action_of_its_name(operation: Operation) -> None:
    """Nobody reads one name as the other: a table holds them together."""
    assert _TOGGLES[operation].name == operation.name

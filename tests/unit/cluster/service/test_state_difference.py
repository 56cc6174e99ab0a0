"""In what two states differ, told by key, index or element."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trimaran.cluster.service.state_difference import describe_difference


@dataclass
class Account:
    name: str
    balance: int


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "['b']: expected=2 actual=3"),
        ({"a": 1}, {}, "['a']: expected=1 is missing"),
        ({}, {"a": 1}, "['a']: expected nothing, actual=1"),
        ((1, [2, 3]), (1, [2, 4]), "[1][1]: expected=3 actual=4"),
        ({1, 2}, {2, 3}, "set lacks 1; set has 3 besides"),
        (Account("a", 1), Account("a", 2), ".balance: expected=1 actual=2"),
        ({"x": Account("a", 1)}, {"x": Account("b", 1)}, "['x'].name: expected='a' actual='b'"),
        (308, 210, "state: expected=308 actual=210"),
    ],
)
def test_differences_are_told_by_place(expected: object, actual: object, told: str) -> None:
    assert describe_difference(expected, actual) == told


def test_many_differences_are_cut() -> None:
    assert describe_difference([0] * 100, [1] * 100).count("expected=0") == 8

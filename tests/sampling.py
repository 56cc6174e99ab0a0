"""Parameters of which the suite runs a sample, and `make campaign` the others."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pytest
from _pytest.mark import ParameterSet


def sampled(values: Iterable[object], of_campaign: Container[object]) -> list[ParameterSet]:
    """Return each value as a parameter, a tuple as several; those of the campaign have its marker."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=pytest.mark.campaign if value in of_campaign else (),
        )
        for value in values
    ]

"""Notebooks, run as a person runs them: a Jupyter kernel each, data made by real processes, one recording for all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from notebooks.demo import RecordedMorning, recorded_morning
from notebooks.execute import execute, scripts

SPARK_DEFAULTS: Final = """
spark.master local[2]
spark.driver.memory 1g
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
"""The first compiler only and one thread that collects: the notebooks are short, and mostly Spark warms up."""

_LABELS: Final = """
import json as _json
from matplotlib.figure import Figure as _Figure
_figures = [value for value in list(Out.values()) if isinstance(value, _Figure)]
_labels = [[(a.get_xlabel(), a.get_ylabel()) for a in figure.axes if a.get_visible()] for figure in _figures]
"""


class Executed:
    """A notebook that ran: its outputs, and values of its kernel at the end."""

    def __init__(self, name: str, cells: list[Any], values: Mapping[str, Any]) -> None:
        self.name = name
        self.cells = cells
        self.values = values

    @property
    def outputs(self) -> list[Any]:
        """Every output of its code cells, in order."""
        return [output for cell in self.cells if cell.cell_type == "code" for output in cell.outputs]

    @property
    def picture_count(self) -> int:
        """How many pictures it shows."""
        return sum("image/png" in output.get("data", {}) for output in self.outputs)

    @property
    def printed(self) -> str:
        """What it printed."""
        return "".join(output.text for output in self.outputs if output.output_type == "stream")


Run = Callable[..., Executed]


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the kernels are started with: data and Spark's settings of these tests, and nothing else on the path."""
    directory = tmp_path_factory.mktemp("notebooks")
    (directory / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    return {
        **os.environ,
        "TRIMARAN_NOTEBOOK_DATA": str(directory / "data"),
        "SPARK_CONF_DIR": str(directory),
    }


@pytest.fixture(scope="session")
def run(environment: dict[str, str]) -> Run:
    """Run a notebook and hold it against what holds for all; `name=expression` gives values of its kernel, as JSON."""

    def execute_and_check(prefix: str, **expressions: str) -> Executed:
        (script,) = scripts([prefix])
        document = ", ".join(f"{name!r}: {expression}" for name, expression in expressions.items())
        probe = f"{_LABELS}\nprint(_json.dumps({{'labels': _labels, {document}}}, default=str))"
        notebook = execute(script, after=[probe], env=environment)
        *cells, last = notebook.cells
        values = json.loads("".join(output.text for output in last.outputs))
        executed = Executed(script.stem, cells, values)
        check_outputs(executed)
        return executed

    return execute_and_check


def check_outputs(executed: Executed) -> None:
    """Nothing on stderr, no warnings, and every figure is a picture whose axes say what they show.

    Of axes above each other the lowest has the name of the x axis that they share.
    """
    complaints = [output.text for output in executed.outputs if output.get("name") == "stderr"]
    assert complaints == []
    assert "warning" not in executed.printed.lower()
    figures = executed.values["labels"]
    assert len(figures) == executed.picture_count > 0
    for axes in figures:
        assert all(y for _, y in axes), axes
        assert axes[-1][0], axes


@pytest.fixture(scope="session")
def morning(environment: dict[str, str]) -> RecordedMorning:
    """The recording that the notebooks read, and what is known of it from the outside."""
    return recorded_morning(Path(environment["TRIMARAN_NOTEBOOK_DATA"]) / "morning")

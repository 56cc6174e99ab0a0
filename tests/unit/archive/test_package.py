"""The package `archive`: its public names, and what reading loads."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.waiting import patient
from trimaran import archive

HEAVY = ("pydantic", "structlog", "typer", "rich", "uvloop", "aiofiles", "prometheus_client", "pydantic_settings")


@pytest.mark.parametrize(
    "package", ["trimaran", "trimaran.archive", "trimaran.archive.spark", "trimaran.cluster.testing"]
)
def test_every_name_that_type_checkers_see_is_there(package: str) -> None:
    init = import_module(package)
    (block,) = [node for node in ast.parse(Path(init.__file__ or "").read_text()).body if isinstance(node, ast.If)]
    imported = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert len(imported) >= 8
    names, homes = map(set, zip(*imported, strict=True))
    # Importing a module would put it in the place of what is public under its name.
    assert not names & homes
    assert names <= set(dir(init))
    for name, module in imported:
        assert getattr(init, name) is getattr(sys.modules[f"{package}.{module}"], name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'trimaran\.archive'.*'Recorder'"):
        archive.Recorder  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    "module",
    [
        "trimaran.archive.log.member_directory",
        "trimaran.archive.reading.vector.columns",
        "trimaran.archive.spark.source.data_source",
    ],
)
def test_reading_recordings_needs_nothing_but_numpy_and_pyarrow(module: str) -> None:
    """Each worker of Spark pays for what is loaded, and its machine must have it."""
    program = f"""
import sys
for name in {HEAVY}:
    sys.modules[name] = None
import {module}
print(sorted(name for name in sys.modules if name.startswith("trimaran.archive.")))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=patient(60),
        check=True,
    )

    assert f"'{module}'" in done.stdout
    assert "'trimaran.archive.store.conductor'" not in done.stdout

"""The package `archive`: its public names, and what reading loads."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import archive
from archive.exports import HOMES

HEAVY = ("pydantic", "structlog", "typer", "rich", "uvloop", "aiofiles", "prometheus_client", "pydantic_settings")


def test_every_public_name_is_in_the_table_of_modules() -> None:
    (block,) = [node for node in ast.parse(Path(archive.__file__).read_text()).body if isinstance(node, ast.If)]
    imported = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert len(imported) > 10
    assert imported == set(HOMES.items())
    assert {name for name, _ in imported} <= set(dir(archive))
    for name, module in imported:
        assert getattr(archive, name) is getattr(sys.modules[f"archive.{module}"], name)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'archive' has no attribute 'Recorder'"):
        archive.Recorder  # type: ignore[attr-defined]  # noqa: B018


def test_reading_recordings_loads_nothing_but_numpy_and_pyarrow() -> None:
    """Each worker of Spark pays for what is loaded, and its machine must have it."""
    program = f"""
import sys
for name in {HEAVY}:
    sys.modules[name] = None
import archive.frame_batches, archive.locations
import archive.vector.columns, archive.vector.messages, archive.vector.scan
print(sorted(name for name in sys.modules if name.startswith("archive.")))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=True
    )

    assert "'archive.vector.scan'" in done.stdout
    assert "'archive.conductor'" not in done.stdout

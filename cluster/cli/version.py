"""The output of `trimaran --version`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from ...service_api.distribution import DISTRIBUTION_NAME, describe_commit, installed_version
from ...service_api.python_build import describe_python


def version_lines() -> list[str]:
    """The version, its commit, the directory that the package is loaded from, and the interpreter."""
    spec = find_spec(DISTRIBUTION_NAME)
    directory = Path(spec.origin).parent if spec is not None and spec.origin is not None else "missing"
    return [
        f"{DISTRIBUTION_NAME} {installed_version()}",
        f"  commit  {describe_commit()}",
        f"  package {directory}",
        f"  python  {describe_python()}, {sys.executable}",
    ]

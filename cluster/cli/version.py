"""The output of `trimaran --version`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from ...service_api.distribution import DISTRIBUTION_NAME, installed_version


def version_lines() -> list[str]:
    """The version, the directory that the package is loaded from, and the interpreter."""
    spec = find_spec(DISTRIBUTION_NAME)
    directory = Path(spec.origin).parent if spec is not None and spec.origin is not None else "missing"
    python = ".".join(map(str, sys.version_info[:3]))
    return [
        f"{DISTRIBUTION_NAME} {installed_version()}",
        f"  package {directory}",
        f"  python  {python} {sys.executable}",
    ]

"""Finds the examples: beside the packages in a checkout, inside `cluster` in an installed wheel."""

from __future__ import annotations

from pathlib import Path

from ....service_api.errors import ConfigurationError

SERVICE_MODULE = "access_quota"
REQUESTS_FILE = "nasa-http-1995-08-01.tsv.gz"


def examples_directory() -> Path:
    """The directory of `access_quota.py` and `data/`.

    Raises:
        ConfigurationError: the environment's: this installation has no examples.
    """
    package = Path(__file__).resolve().parents[2]
    candidates = (package / "_examples", package.parent / "examples")
    for candidate in candidates:
        if (candidate / f"{SERVICE_MODULE}.py").is_file():
            return candidate
    raise ConfigurationError(f"examples not found: expected one of {[str(path) for path in candidates]}")

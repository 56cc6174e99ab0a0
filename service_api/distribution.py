"""The installed distribution: its name and its version."""

from __future__ import annotations

import functools
from typing import Final

DISTRIBUTION_NAME: Final = "trimaran"


@functools.cache
def installed_version() -> str:
    """The version of the installed distribution, or `not installed` in a bare checkout; looked up once per process."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION_NAME)
    except PackageNotFoundError:
        return "not installed"

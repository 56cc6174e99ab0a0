"""The installed distribution: its name and its version."""

from __future__ import annotations

import functools
from typing import Final

DISTRIBUTION_NAME: Final = "trimaran"

_TARGETS: Final = ("report", "spark")
"""Extras that the Makefile installs."""


def install_advice(extra: str) -> str:
    """Say how to install one of our extras, from a checkout: the registry's package of that name need not be ours."""
    target = f" or `make setup-{extra}`" if extra in _TARGETS else ""
    return f"in a checkout of Trimaran: pip install '.[{extra}]'{target}"


@functools.cache
def installed_version() -> str:
    """The version of the installed distribution, or `not installed` in a bare checkout; looked up once per process."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION_NAME)
    except PackageNotFoundError:
        return "not installed"

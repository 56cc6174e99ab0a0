"""What `quorate --version` prints."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

from service_api.distribution import DISTRIBUTION_NAME, PACKAGE_NAMES, package_owners


def version_lines() -> list[str]:
    """The version, then one line per package: name, where it lies, and who installed it."""
    lines = [f"{DISTRIBUTION_NAME} {installed_version()}"]
    owners = package_owners()
    for name in PACKAGE_NAMES:
        owner = ", ".join(owners[name]) or "no distribution: a checkout or an editable install"
        lines.append(f"  {name:<12} {_package_directory(name)}  ({owner})")
    return lines


def installed_version() -> str:
    """The version of the installed distribution, or `not installed` in a bare checkout."""
    try:
        return metadata.version(DISTRIBUTION_NAME)
    except metadata.PackageNotFoundError:
        return "not installed"


def _package_directory(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return "missing"
    if spec.origin is not None:
        return str(Path(spec.origin).parent)
    return ", ".join(spec.submodule_search_locations or ())

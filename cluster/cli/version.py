"""What `quorate --version` prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from service_api.distribution import DISTRIBUTION_NAME, PACKAGE_NAMES, installed_version, package_owners


def version_lines() -> list[str]:
    """The version, then one line per package: name, where it lies, and who installed it."""
    lines = [f"{DISTRIBUTION_NAME} {installed_version()}"]
    owners = package_owners()
    for name in PACKAGE_NAMES:
        owner = ", ".join(owners[name]) or "no distribution: a checkout or an editable install"
        lines.append(f"  {name:<12} {_package_directory(name)}  ({owner})")
    return lines


def _package_directory(name: str) -> str:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return "missing"
    if spec.origin is not None:
        return str(Path(spec.origin).parent)
    return ", ".join(spec.submodule_search_locations or ())

"""Makes sure that the four import packages are Quorate's own.

The names `cluster`, `archive`, `client` and `service_api` are common. Another distribution that installs one
of them into the same environment silently overwrites our files, and removing it again deletes them; pip says
nothing. So at node start and in `client.connect` the installed distributions are asked who owns the names,
and an intruder is named. It takes a few milliseconds, once per process. An editable install owns nothing
here, and that is fine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .errors import ConfigurationError

DISTRIBUTION_NAME: Final = "quorate"
PACKAGE_NAMES: Final = ("cluster", "archive", "client", "service_api")

OwnerProvider = Callable[[], Mapping[str, Sequence[str]]]


@functools.cache
def installed_version() -> str:
    """The version of the installed distribution, or `not installed` in a bare checkout; looked up once per process."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION_NAME)
    except PackageNotFoundError:
        return "not installed"


def installed_owners() -> Mapping[str, Sequence[str]]:
    """Which installed distributions own which top-level import names."""
    from importlib.metadata import packages_distributions

    return packages_distributions()


def package_owners(provider: OwnerProvider = installed_owners) -> dict[str, list[str]]:
    """The owners of Quorate's four names, without repetition; an empty list for a name nobody owns."""
    owners = provider()
    return {name: sorted(set(owners.get(name, ()))) for name in PACKAGE_NAMES}


def check_package_owners(provider: OwnerProvider = installed_owners) -> None:
    """Refuse to go on if another distribution installed one of the four packages.

    Raises:
        ConfigurationError: the environment's: names the intruder, what it overwrote, and what to do.
    """
    intruders: dict[str, list[str]] = {}
    for name, owners in package_owners(provider).items():
        for owner in owners:
            if owner.lower() != DISTRIBUTION_NAME:
                intruders.setdefault(owner, []).append(name)
    if intruders:
        found = "; ".join(f"{owner!r} owns {', '.join(names)}" for owner, names in sorted(intruders.items()))
        culprits = " ".join(sorted(intruders))
        raise ConfigurationError(
            f"another distribution installed a package of Quorate's name: {found}; "
            f"run `pip uninstall {culprits}` and `pip install --force-reinstall {DISTRIBUTION_NAME}`, "
            f"or give Quorate an environment of its own"
        )


@functools.cache
def check_package_owners_once() -> None:
    """`check_package_owners`, asked once per process; what `client.connect` calls."""
    check_package_owners()

"""Finds the user's service class from `module:Class`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ...service_api import ClusteredService
from ...service_api.errors import ConfigurationError
from ...service_api.service_directory import check_services
from .plugin_loading import load_named

_INPUTS: Final = ("on_request", "on_session_message", "on_service_message")
"""What a service may live on."""


def load_service_class(service: str, service_dir: Path) -> type[ClusteredService]:
    """Import the class that `service` names, looking in `service_dir` first.

    Raises:
        ConfigurationError: the user's: it cannot be found or imported (see `load_named`), or the class is no
            ClusteredService that can be made without arguments.
    """
    found = load_named("service", service, service_dir, is_offered=_is_service)
    if not (isinstance(found, type) and issubclass(found, ClusteredService)):
        raise ConfigurationError(f"not a service: service={service} expected a subclass of ClusteredService")
    missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
    if missing:
        raise ConfigurationError(f"service is not complete: service={service} missing={sorted(missing)}")
    if all(getattr(found, name) is getattr(ClusteredService, name) for name in _INPUTS):
        raise ConfigurationError(f"service is not complete: service={service} expected one of {', '.join(_INPUTS)}")
    return found


def load_service_classes(names: Iterable[str], service_dir: Path) -> list[type[ClusteredService]]:
    """Import the classes of all services of a node, in the order of their ids.

    Raises:
        ConfigurationError: as `load_service_class`, or typed services have one name.
    """
    classes = [load_service_class(name, service_dir) for name in names]
    check_services(classes)
    return classes


def _is_service(value: Any) -> bool:  # Any: whatever a module holds
    return isinstance(value, type) and issubclass(value, ClusteredService) and value is not ClusteredService

"""Finds the user's service class from `module:Class`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from service_api import ClusteredService
from service_api.errors import ConfigurationError


def load_service_class(service: str, service_dir: Path) -> type[ClusteredService]:
    """Import the class that `service` names, looking in `service_dir` first.

    The directory stays on the import path, so that the service can import its neighbours at any time.

    Raises:
        ConfigurationError: the user's: no such directory, module or class, the module fails as it is
        imported, or
            the class is no ClusteredService that can be made without arguments.
    """
    module_name, _, class_name = service.partition(":")
    directory = service_dir.resolve()
    if not directory.is_dir():
        raise ConfigurationError(f"service directory not found: service_dir={directory}")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise ConfigurationError(f"service cannot be imported: service={service} reason={error}") from error
        raise ConfigurationError(
            f"service module not found: module={module_name} service_dir={directory} (set --service-dir)"
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"service cannot be imported: service={service} reason={type(error).__name__}: {error}"
        ) from error
    return _checked_class(module, class_name, service)


def _checked_class(module: object, class_name: str, service: str) -> type[ClusteredService]:
    found = getattr(module, class_name, None)
    if found is None:
        known = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, ClusteredService) and value is not ClusteredService
        ]
        raise ConfigurationError(f"service class not found: service={service} expected one of {known}")
    if not (isinstance(found, type) and issubclass(found, ClusteredService)):
        raise ConfigurationError(f"not a service: service={service} expected a subclass of ClusteredService")
    missing: frozenset[str] = getattr(found, "__abstractmethods__", frozenset())
    if missing:
        raise ConfigurationError(f"service is not complete: service={service} missing={sorted(missing)}")
    return found

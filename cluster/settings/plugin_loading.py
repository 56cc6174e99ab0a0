"""Loads the user's classes, named as `module:Class`: authenticators, authorisation services, services."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ...service_api.authenticator import AcceptAll, Authenticator
from ...service_api.authorisation import BUILT_IN_AUTHORISATION_SERVICES, AuthorisationService
from ...service_api.errors import ConfigurationError
from ...service_api.users_code import calls_users_code
from ..auth.password_authenticator import PasswordAuthenticator
from ..auth.secrets_file import SecretsFile

_AUTHORISATION_METHODS: Final = ("is_authorised",)
_AUTHENTICATOR_METHODS: Final = (
    "on_connect_request",
    "on_connected_session",
    "on_challenge_response",
    "on_challenged_session",
)


@calls_users_code
def load_named(what: str, name: str, directory: Path, *, is_offered: Callable[[Any], bool]) -> Any:  # Any: user's
    """Import what `name`, a `module:Class`, stands for, looking in `directory` first.

    The directory stays on the import path, so that the module can import its neighbours at any time. `what` is what it
    is called in errors; `is_offered` tells what else of the module could have been meant.

    Raises:
        ConfigurationError: the user's: no such directory, module or class, or the module fails as it is imported.
    """
    module_name, _, class_name = name.partition(":")
    directory = directory.resolve()
    if not directory.is_dir():
        raise ConfigurationError(f"service directory not found: service_dir={directory}")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise ConfigurationError(f"{what} cannot be imported: {what}={name} reason={error}") from error
        raise ConfigurationError(
            f"{what} module not found: module={module_name} service_dir={directory} (set --service-dir)"
        ) from error
    except Exception as error:
        raise ConfigurationError(
            f"{what} cannot be imported: {what}={name} reason={type(error).__name__}: {error}"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        known = [known_name for known_name, value in vars(module).items() if is_offered(value)]
        raise ConfigurationError(f"{what} class not found: {what}={name} expected one of {known}")
    return found


def load_authorisation(name: str, service_dir: Path) -> AuthorisationService:
    """Make the authorisation service that the setting names: built in, or the user's.

    Raises:
        ConfigurationError: the user's: as `load_named`, or the class is none of an authorisation service.
    """
    loaded: AuthorisationService = load_instance(
        "authorisation", name, service_dir, built_in=BUILT_IN_AUTHORISATION_SERVICES, methods=_AUTHORISATION_METHODS
    )
    return loaded


def load_authenticator(
    name: str, service_dir: Path, *, secrets: Callable[[], SecretsFile] | None, random: Callable[[], float]
) -> Authenticator:
    """Make the authenticator that the setting names: built in, or the user's.

    `secrets` gives what `password` knows of principals; its nonces are made of `random`, uniform in [0, 1).

    Raises:
        ConfigurationError: the user's: as `load_named`, or the class is none of an authenticator.
    """

    def random_bytes(length: int) -> bytes:
        return bytes(int(random() * 256) for _ in range(length))

    def make_password_authenticator() -> Authenticator:
        assert secrets is not None  # the settings see to it
        return PasswordAuthenticator(secrets, random_bytes)

    loaded: Authenticator = load_instance(
        "authenticator",
        name,
        service_dir,
        built_in={
            "accept-all": AcceptAll,
            "password": make_password_authenticator,
        },
        methods=_AUTHENTICATOR_METHODS,
    )
    return loaded


@calls_users_code
def load_instance(
    what: str, name: str, service_dir: Path, *, built_in: Mapping[str, Callable[[], Any]], methods: tuple[str, ...]
) -> Any:  # Any: the user's, checked for its methods
    """Make an object of the class that `name` stands for; it is known by having `methods`.

    Raises:
        ConfigurationError: the user's: as `load_named`, no such class, or it cannot be made without arguments.
    """
    if ":" not in name:
        if name not in built_in:
            raise ConfigurationError(f"{what} unknown: {what}={name} expected one of {[*built_in]} or module:Class")
        return built_in[name]()

    def is_one(value: Any) -> bool:
        return isinstance(value, type) and all(callable(getattr(value, method, None)) for method in methods)

    found = load_named(what, name, service_dir, is_offered=is_one)
    if not is_one(found):
        raise ConfigurationError(f"{what} is not usable: {what}={name} expected a class with {', '.join(methods)}")
    try:
        return found()
    except Exception as error:
        raise ConfigurationError(
            f"{what} cannot be made: {what}={name} reason={type(error).__name__}: {error}"
        ) from error

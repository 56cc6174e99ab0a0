"""How the commands of ready-made services reach a cluster, and how what it says becomes a line or an exit status."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Final, TypeVar

import typer

from ....archive.tool.output import EXIT_FAILED, EXIT_REFUSED, EXIT_UNREACHABLE, SHARED_PANEL, fail
from ....client import ClientConfig, ConnectRejectedError, ConnectTimeoutError, PasswordCredentials
from ....client.typed import SyncTypedClient
from ....service_api.cluster_id import format_cluster_id
from ....service_api.errors import ClusterTimeoutError, ConfigurationError, LocalProtocolError, SessionClosedError
from ....service_api.typed import ServiceError
from ...settings.variables import PASSWORD_VARIABLE, USER_VARIABLE
from ..shared.setting_flags import load_cluster_id_from_flags, load_members_from_flags, load_tls_from_flags

_ADVICE: Final = {
    "CHALLENGE": f"it asks who you are: say --user NAME, and the password in {PASSWORD_VARIABLE}",
    "AUTHENTICATION_REJECTED": f"look at --user and {PASSWORD_VARIABLE}; after many tries wait a minute",
}

UserOption = Annotated[
    str,
    typer.Option(
        "--user",
        envvar=USER_VARIABLE,
        metavar="NAME",
        help=f"Who you are; the password is in {PASSWORD_VARIABLE}.",
        rich_help_panel=SHARED_PANEL,
        show_default=False,
    ),
]
WaitOption = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, metavar="SECONDS", help="How long to look for a leader.", rich_help_panel=SHARED_PANEL
    ),
]

EntryLimitOption = Annotated[int, typer.Option("-n", "--limit", min=1, help="End after this many.")]

ClientT = TypeVar("ClientT", bound=SyncTypedClient)


def config_of_client(settings: dict[str, Any], user: str, timeout_s: float) -> ClientConfig:
    """Return how a client reaches the cluster that the settings name.

    Raises:
        ConfigurationError: the user's: settings that cannot be used.
    """
    members = load_members_from_flags(settings)
    cluster_id = load_cluster_id_from_flags(settings)
    return ClientConfig(
        endpoints=tuple(member.ingress for member in members),
        cluster_id=format_cluster_id(cluster_id) or "",
        connect_timeout_s=timeout_s,
        credentials=PasswordCredentials(user, os.environ.get(PASSWORD_VARIABLE, "")) if user else b"",
        tls=load_tls_from_flags(settings),
    )


@contextmanager
def errors_as_exits() -> Iterator[None]:
    """Say in one line what a client raises, and exit.

    Raises:
        typer.Exit: no leader in time (3), refused (12), or the service said no (1).
    """
    try:
        yield
    except ServiceError as error:
        fail(str(error), EXIT_FAILED)
    except ConnectRejectedError as error:
        advice = _ADVICE.get(error.code)
        said = str(error) if advice is None else f"cluster session refused: code={error.code}: {advice}"
        fail(said, EXIT_REFUSED)
    except (ConnectTimeoutError, ClusterTimeoutError, SessionClosedError) as error:
        fail(str(error), EXIT_UNREACHABLE)
    except LocalProtocolError as error:
        fail(str(error))


@contextmanager
def connected(kind: type[ClientT], settings: dict[str, Any], user: str, timeout_s: float) -> Iterator[ClientT]:
    """Open a session with the cluster that the settings name, and close it.

    Raises:
        ConfigurationError: as `config_of_client`.
        typer.Exit: as `errors_as_exits`.
    """
    config = config_of_client(settings, user, timeout_s)
    with errors_as_exits(), kind.connect(config=config) as client:
        yield client


def expect_text(name: str, value: object) -> None:
    """Refuse arguments whose bytes are no UTF-8: Python has them as characters that no message can carry.

    Raises:
        ConfigurationError: the value, or one of several, is no text.
    """
    for each in value if isinstance(value, list) else (value,):
        if isinstance(each, str) and not each.isprintable():
            try:
                each.encode()
            except UnicodeEncodeError:
                raise ConfigurationError(f"{name}={each!r} expected text in UTF-8") from None


def reply_row(reply: Any) -> dict[str, Any]:  # a class of messages, whichever
    """Return a reply by field names, as JSON can hold it; of bytes the text that they are in UTF-8, or \\xNN."""
    return {field.name: _shown(getattr(reply, field.name)) for field in fields(reply)}


def _shown(value: Any) -> Any:
    if is_dataclass(value):
        return reply_row(value)
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return round(value, 6) if isinstance(value, float) else value

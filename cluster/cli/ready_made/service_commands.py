"""Commands of a service made from its messages, as the flags of a node are made from its settings.

A field of a message without a default is an argument, any other an option: `ttl_s: float | None = None` is
`--ttl SECONDS`. Bytes are what the shell passes, usually text in UTF-8; `-` reads them from standard input. Any other
text must be UTF-8. A command that is more than one message is a function that gets the client.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, NamedTuple, TypeVar, get_type_hints

import typer

from ....archive.tool.output import EXIT_FAILED, new_group, print_line
from ....client.typed import SyncTypedClient
from ....service_api.errors import ConfigurationError
from ....service_api.typed import Command, Query
from ..shared.setting_flags import with_client_flags
from .client import UserOption, WaitOption, connected, expect_text, reply_row

ClientT = TypeVar("ClientT", bound=SyncTypedClient)
R = TypeVar("R")

_METAVARS: Final = {"_s": "SECONDS"}


class FieldFlag(NamedTuple):
    """How a field of a message is given on the command line."""

    help: str
    name: str = ""
    """The option `--name`, or the argument `NAME`; empty: the name of the field, without its unit."""
    metavar: str = ""
    parse: Callable[[Any], Any] | None = None
    """The function that makes the value of the text, or of the texts of an option that may be given more than once."""
    minimum: int | None = None


class ServiceCommands(Generic[ClientT]):
    """The commands of one service, for which `app` is the group."""

    def __init__(self, name: str, help_text: str, client: type[ClientT]) -> None:
        self.app: Final = new_group(help_text)
        self._name = name
        self._client = client

    def __repr__(self) -> str:
        return f"<ServiceCommands {self._name}>"

    def command(self, example: str) -> Callable[[Callable[..., int | None]], None]:
        """Add a function as a command: it gets a client and its own parameters, and may return an exit status.

        `example` is what follows the name of the service; it begins with the name of the command.
        """

        def add(function: Callable[..., int | None]) -> None:
            _, *own = inspect.signature(function, eval_str=True).parameters.values()
            self._add(example, function, own, {})

        return add

    def message(
        self,
        example: str,
        message: Callable[..., Command[R] | Query[R]],
        help_text: str,
        *,
        show: Callable[[R], int | None],
        **given: FieldFlag,
    ) -> None:
        """Add a command that sends one message, made of the fields in `given`, and shows what is answered."""

        def send(client: ClientT, **values: Any) -> int | None:
            sent = message(**values)
            return show(client.call(sent) if isinstance(sent, Command) else client.ask(sent))

        send.__doc__ = help_text
        kinds = get_type_hints(message)
        parses = {name: _read_bytes if kinds[name] is bytes else field.parse for name, field in given.items()}
        self._add(example, send, [_parameter_of(message, name, field) for name, field in given.items()], parses)

    def _add(
        self,
        example: str,
        function: Callable[..., int | None],
        own: list[inspect.Parameter],
        parses: Mapping[str, Callable[[Any], Any] | None],
    ) -> None:
        names = [parameter.name for parameter in own]

        def command(user: UserOption = "", timeout: WaitOption = 5.0, **values: Any) -> None:
            given = {name: values.pop(name) for name in names}
            for name, value in given.items():
                parse = parses.get(name)
                if parse is not _read_bytes:
                    expect_text(name, value)
                given[name] = value if parse is None else parse(value)
            with connected(self._client, values, user, timeout) as client:
                status = function(client, **given)
            raise typer.Exit(status or 0)

        user, timeout, _ = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, user, timeout)]
        command.__dict__["__signature__"] = inspect.Signature(parameters)
        command.__doc__ = function.__doc__
        epilog = f"Example: trimaran {self._name} {example} --config trimaran-data/cluster.toml"
        self.app.command(example.split()[0], epilog=epilog)(with_client_flags(command))


def show_row(reply: object) -> None:
    """Print a reply as one JSON object."""
    print_line(reply_row(reply))


def show_rows(replies: Iterable[object]) -> None:
    """Print replies, one JSON object on each line."""
    for reply in replies:
        show_row(reply)


def exit_unless(is_done: object) -> int:
    """Return the exit status that says whether there was something."""
    return 0 if is_done else EXIT_FAILED


def _parameter_of(message: Any, name: str, given: FieldFlag) -> inspect.Parameter:  # a class of messages, whichever
    """Make the argument or option of a field, with its type and default."""
    declared = next(each for each in fields(message) if each.name == name)
    is_required = declared.default is MISSING and declared.default_factory is MISSING
    kind: Any = get_type_hints(message)[name]
    if kind is bytes:
        kind = str
    elif given.parse is not None:
        kind = str | None if declared.default_factory is MISSING else list[str] | None
    called = given.name or name.removesuffix("_s")
    option: dict[str, Any] = {
        "help": given.help,
        "min": given.minimum,
        "show_default": declared.default not in (None, ""),
    }
    flag: Any
    if is_required or called.isupper():
        flag = typer.Argument(metavar=(given.metavar or called).upper(), **option)
    else:
        flag = typer.Option(f"--{called}", metavar=given.metavar or _METAVARS.get(name[-2:]), **option)
    default = inspect.Parameter.empty if is_required else None if declared.default is MISSING else declared.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, flag])


def _read_bytes(text: str) -> bytes:
    return sys.stdin.buffer.read() if text == "-" else os.fsencode(text)


def parse_headers(given: list[str] | None) -> dict[str, str]:
    """Read headers, each as NAME=VALUE.

    Raises:
        ConfigurationError: one has no name or no value.
    """
    headers: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--header={each} expected NAME=VALUE")
        headers[name] = value
    return headers


def parse_moment(text: str | None) -> float | None:
    """Read a moment as seconds since 1970: a date and time, in UTC unless it names its zone.

    Raises:
        ConfigurationError: the text is no time.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"--at={text} expected a time, such as 2027-01-01T00:00") from error
    return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).timestamp()

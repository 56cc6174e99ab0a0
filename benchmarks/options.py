"""The options of commands: a command has one for each annotated field of its parameters' dataclass.

So each value is named, described, bounded and given its default in one place. Fields without an option are for other
benchmarks that run this one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_origin, get_type_hints

import typer

from ..service_api.errors import ConfigurationError
from .statistics.report import Report, print_figures, write_json

Members: TypeAlias = Annotated[int, typer.Option(min=1, help="Members of the cluster, each a process.")]
Payload: TypeAlias = Annotated[int, typer.Option(min=8, help="Bytes in a message.")]
SyncLevel: TypeAlias = Annotated[int, typer.Option(min=0, max=2, help="0 page cache, 1 fdatasync, 2 fsync.")]
Tls: TypeAlias = Annotated[bool, typer.Option("--tls", help="Encrypt, with certificates made for the run.")]
TimeLimit: TypeAlias = Annotated[float, typer.Option("--time-limit", help="Seconds after which the run is given up.")]
Settings: TypeAlias = Annotated[
    Mapping[str, str], typer.Option("--setting", help="Another node setting, as name=value; may be repeated.")
]
Rounds: TypeAlias = Annotated[int, typer.Option(min=1, help="Rounds; of each figure the median counts.")]

JsonOption: TypeAlias = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
DirectoryOption: TypeAlias = Annotated[
    Path | None, typer.Option("--dir", help="Where members keep files. Default: a fresh directory in ./.bench.")
]
KeepOption: TypeAlias = Annotated[bool, typer.Option("--keep", help="Leave the files of every measurement in place.")]

_Option: TypeAlias = tuple[Any, Any, Callable[[Any], Any]]
"""The type on the command line, the default there, and what turns the value into that of the field."""


def make_command(
    parameters_type: type[Any],  # a dataclass
    run: Callable[..., Report],
    *,
    show: Callable[[Report], None] = print_figures,
) -> Callable[..., None]:
    """Return the function of a command, which runs a benchmark, writes its report and shows it.

    `run` takes the parameters, `directory` and `keep`. If it takes `on_round`, too, the file is written after each
    round.
    """
    writes_rounds = "on_round" in inspect.signature(run).parameters
    hints = get_type_hints(parameters_type, include_extras=True)
    options: dict[str, _Option] = {}
    arguments = []
    for field in fields(parameters_type):
        if get_origin(hints[field.name]) is Annotated:
            kind, *more = get_args(hints[field.name])
            options[field.name] = _option(field.name, kind, field.default, more[0].min)
            annotation: Any = Annotated[options[field.name][0], *more]
            arguments.append(_argument(field.name, annotation, options[field.name][1]))
    arguments += [
        _argument("directory", DirectoryOption, None),
        _argument("keep", KeepOption, False),
        _argument("json", JsonOption, None),
    ]

    def command(*, directory: Path | None, keep: bool, json: Path | None, **given: Any) -> None:
        parameters = parameters_type(**{name: options[name][2](value) for name, value in given.items()})
        more = {"on_round": partial(write_json, path=json)} if writes_rounds and json is not None else {}
        report = run(parameters, directory=directory, keep=keep, **more)
        if json is not None:
            write_json(report, json)
        show(report)

    command.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    return command


def _argument(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(name: str, kind: Any, default: Any, least: float | None) -> _Option:
    """Return how a field is written on the command line: lists with commas, settings as name=value."""
    if get_origin(kind) is tuple:
        parse = partial(parse_list, name, get_args(kind)[0], least=least, may_be_empty=default == ())
        return str, ",".join(map(str, default)), parse
    if get_origin(kind) is Mapping:
        return list[str] | None, None, parse_settings
    return kind, default, lambda value: value


def parse_list(
    name: str, kind: type[Any], text: str, *, least: float | None = None, may_be_empty: bool = False
) -> tuple[Any, ...]:
    """Read values with commas between.

    Raises:
        ConfigurationError: one of them is not valid, or there is no value.
    """
    expected = ",".join(kind) if issubclass(kind, StrEnum) else f"{kind.__name__}s with commas"
    if least is not None:
        expected += f", at least {least:g}"
    try:
        values = tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ConfigurationError(f"{name}={text!r} expected {expected}") from error
    if not (values or may_be_empty) or (least is not None and any(value < least for value in values)):
        raise ConfigurationError(f"{name}={text!r} expected {expected}")
    return values


def parse_settings(texts: Sequence[str] | None) -> dict[str, str]:
    """Read node settings.

    Raises:
        ConfigurationError: one is not name=value.
    """
    settings = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"setting={text!r} expected name=value")
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings

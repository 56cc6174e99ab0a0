"""`trimaran config show`: every setting, its value, and where the value came from."""

from __future__ import annotations

import json
from typing import Any, Final

import typer

from trimaran.archive.tool.output import OutputFormat, OutputOption, new_group, print_line

from ..settings.config_layers import LoadedConfig, setting_kind
from .shared.setting_flags import load_from_flags, with_setting_flags

app: Final = new_group("Show the settings of a member, and the source of each value.")


@app.callback()
def _group() -> None:
    """Show the settings of a node and where each came from."""


@app.command(name="show")
@with_setting_flags
def show_config(
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Print every setting with its value and its source: a flag, a variable, the file, or the default.

    It reads the same flags, environment and file as `trimaran node`, and refuses the same mistakes.
    """
    loaded = load_from_flags(settings)
    if output is OutputFormat.JSONL:
        for name, setting in _as_dict(loaded).items():
            print_line({"setting": name, **setting})
    elif output is OutputFormat.JSON:
        typer.echo(json.dumps(_as_dict(loaded), indent=2))
    else:
        typer.echo(_as_table(loaded))


def _shown(loaded: LoadedConfig) -> list[tuple[str, str, str]]:
    return [
        (name, setting_kind(name).show(getattr(loaded.config, name)), origin) for name, origin in loaded.origins.items()
    ]


def _as_table(loaded: LoadedConfig) -> str:
    rows = [("setting", "value", "from"), *_shown(loaded)]
    name_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{name:<{name_width}}  {value:<{value_width}}  {origin}" for name, value, origin in rows)


def _as_dict(loaded: LoadedConfig) -> dict[str, dict[str, Any]]:  # what the settings are in JSON
    values = loaded.config.model_dump(mode="json")
    return {name: {"value": values[name], "from": origin} for name, origin in loaded.origins.items()}

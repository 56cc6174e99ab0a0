"""`trimaran config`: every setting, its value and where the value came from; in what members differ; and a file to
begin with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

import typer
from pydantic_core import to_jsonable_python

from ...archive.tool.output import ABSENT, OutputFormat, OutputOption, new_group, print_line, print_rows
from ..documents.diagnosis import DiagnosisRequest, DiagnosisTopic
from ..settings.config_layers import flag_name, setting_kind
from ..settings.fields import HEADINGS
from ..settings.template import settings_template
from ..settings.variables import ENV_PREFIX
from .shared.diagnosing import diagnose_all, expect_answers
from .shared.every_group import of_every_group
from .shared.setting_flags import (
    find_missing_from_flags,
    load_asked_cluster,
    load_from_flags,
    load_given_from_flags,
    with_member_flags,
    with_setting_flags,
)
from .shared.watching import TimeoutOption

app: Final = new_group("Show the settings of a member, and the source of each value; compare members.")


@app.callback()
def _group() -> None:
    """Show the settings of a node, compare those of members that run, or print a file to begin with."""


@app.command(name="show")
@with_setting_flags()
def show_config(
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Print every setting with its value and its source: a flag, a variable, the file, or the default.

    It reads the same flags, environment and file as `trimaran node`, and refuses the same mistakes. A setting that a
    node needs and that nothing gives is shown as missing.
    """
    if not find_missing_from_flags(settings):
        load_from_flags(settings)  # whether they fit together
    values, origins = load_given_from_flags(settings)
    if output is OutputFormat.JSONL:
        for name, setting in _as_dict(values, origins).items():
            print_line({"setting": name, **setting})
    elif output is OutputFormat.JSON:
        typer.echo(json.dumps(_as_dict(values, origins), indent=2))
    else:
        typer.echo(_as_table(values, origins))


@app.command(name="template")
def print_template() -> None:
    """Print a settings file with every setting under its heading, with its meaning and default, all commented out."""
    typer.echo(settings_template(), nl=False)


@app.command(name="compare", epilog="Example: trimaran config compare --config trimaran-data/cluster.toml")
@with_member_flags
@of_every_group
def compare_settings(output: OutputOption = OutputFormat.TABLE, timeout: TimeoutOption = 1.0, **settings: Any) -> None:
    """Show the settings in which the members that run differ, as each member goes by them.

    Asking takes an operator's role. Some settings differ by their nature, such as member_id and directory;
    docs/operations.md says which must be the same. A value is shown without secrets.

    Exit status 0: at least one member answered; 3: none can be reached; 12: the caller may not have them.
    """
    cluster = load_asked_cluster(settings)
    request = DiagnosisRequest(topic=DiagnosisTopic.SETTINGS)
    answers = expect_answers(asyncio.run(diagnose_all(cluster, request, timeout)))
    differing = find_differing({member_id: answer.settings for member_id, answer in answers.items()})
    if output is not OutputFormat.TABLE:
        print_rows(({"setting": name, "values": values} for name, values in differing.items()), output)
        return
    rows = [
        {"setting": name, **{f"member {member_id}": values.get(member_id, ABSENT) for member_id in answers}}
        for name, values in differing.items()
    ]
    print_rows(rows, output, empty=f"no setting differs: {len(answers)} members answered")


def find_differing(members: Mapping[int, Mapping[str, str]]) -> dict[str, dict[int, str]]:
    """Find the settings that do not have one value on all members: their values, by member id."""
    names = dict.fromkeys(name for settings in members.values() for name in settings)
    found = {
        name: {member_id: settings[name] for member_id, settings in members.items() if name in settings}
        for name in names
    }
    return {name: values for name, values in found.items() if len({*values.values()}) > 1 or len(values) < len(members)}


def _as_table(values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    rows = [("setting", "value", "from")]
    for heading, settings in HEADINGS.items():
        rows += [("", "", ""), (f"== {heading}", "", "")]
        for name in settings.model_fields:
            if name in values:
                rows.append((name, setting_kind(name).show(values[name]), origins[name]))
            else:
                rows.append((name, "", f"missing: give {flag_name(name)} or {ENV_PREFIX}{name.upper()}"))
    name_width, value_width = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{name:<{name_width}}  {value:<{value_width}}  {origin}".rstrip() for name, value, origin in rows)


def _as_dict(values: Mapping[str, Any], origins: Mapping[str, str]) -> dict[str, dict[str, Any]]:  # as JSON has them
    plain = to_jsonable_python(values)
    return {
        name: {"value": plain[name], "from": origin} if name in plain else {"value": None, "from": "missing"}
        for name, origin in origins.items()
    }

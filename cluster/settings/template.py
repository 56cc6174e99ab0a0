"""A file of all settings to begin with: each under its heading, with its meaning and its default, commented out."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Final

from .config import NodeConfig
from .config_layers import setting_kind
from .fields import HEADINGS

_WIDTH: Final = 100


def settings_template() -> str:
    """Return the text of the file. With no line changed it sets nothing."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# The settings of a member. Remove the # in front of a setting to change it."
    for settings in HEADINGS.values():
        yield from (
            "",
            *textwrap.wrap(f"== {settings.__doc__}", _WIDTH, initial_indent="# ", subsequent_indent="#    "),
        )
        for name in settings.model_fields:
            yield ""
            text = str(NodeConfig.model_fields[name].description)
            yield from textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
            yield f"#{name} = {_value(name)}".rstrip()


def _value(name: str) -> str:
    """Write the default of a setting in TOML; nothing of a setting that has to be given."""
    field, kind = NodeConfig.model_fields[name], setting_kind(name)
    if field.is_required():
        return ""
    text = kind.show(field.default)
    return text if kind.file_type is bool or text.lstrip("-").isdecimal() else json.dumps(text, ensure_ascii=False)

"""The tables of docs/settings.md: the settings under each heading, in the words of their own descriptions.

`python -m tests.settings_page` writes the tables again.
"""

from __future__ import annotations

from typing import Final

from tests.places import ROOT
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import setting_kind
from trimaran.cluster.settings.fields import HEADINGS

PAGE: Final = ROOT / "docs" / "settings.md"
BEGIN: Final = "<!-- The tables are written by `python -m tests.settings_page`. -->\n"


def tables() -> str:
    """Return a section for each heading: what its settings are about, and a row for each of them."""
    parts = []
    for heading, settings in HEADINGS.items():
        about = str(settings.__doc__).partition(": ")[2]
        rows = [
            f"| `{name}` | {_default(name)} | {NodeConfig.model_fields[name].description} |"
            for name in settings.model_fields
        ]
        parts += [
            f"## {heading.capitalize()}",
            about[0].upper() + about[1:],
            "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows),
        ]
    return "\n\n".join(parts) + "\n"


def _default(name: str) -> str:
    field = NodeConfig.model_fields[name]
    if field.is_required():
        return "required"
    text = setting_kind(name).show(field.default)
    return f"`{text}`" if text else ""


def replace_tables(text: str) -> str:
    """Put the tables after their mark, where the page ends with them."""
    return text.partition(BEGIN)[0] + BEGIN + "\n" + tables()


if __name__ == "__main__":
    PAGE.write_text(replace_tables(PAGE.read_text()))

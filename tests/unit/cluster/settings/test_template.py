"""The file of all settings to begin with, and the page of the settings: made of the fields."""

from __future__ import annotations

import re
from pathlib import Path

from tests.settings_page import PAGE, replace_tables
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import load_given
from trimaran.cluster.settings.fields import HEADINGS
from trimaran.cluster.settings.template import settings_template


def test_a_template_sets_nothing_until_a_line_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(settings_template())

    assert set(load_given(file)[1].values()) == {"default"}


def test_each_line_of_a_template_is_the_setting_at_its_default(tmp_path: Path) -> None:
    """A setting that has to be given stands there without a value."""
    text = re.sub(r"^#(\w+ =)", r"\1", settings_template(), flags=re.MULTILINE)
    file = tmp_path / "node.toml"
    file.write_text(re.sub(r"^(\w+ =)$", r"#\1", text, flags=re.MULTILINE))
    required = {name for name, field in NodeConfig.model_fields.items() if field.is_required()}

    values, origins = load_given(file)

    assert {name for name, origin in origins.items() if origin == "default"} == required
    assert values == load_given()[0]


def test_a_template_has_the_headings_and_under_each_its_settings() -> None:
    found = re.findall(r"^# == (\w+)|^#(\w+) =", settings_template(), flags=re.MULTILINE)

    assert [heading.lower() or name for heading, name in found] == [
        name for heading, settings in HEADINGS.items() for name in (heading, *settings.model_fields)
    ]


def test_the_page_of_the_settings_is_as_the_fields_are() -> None:
    """`python -m tests.settings_page` writes it again."""
    assert replace_tables(PAGE.read_text()) == PAGE.read_text()

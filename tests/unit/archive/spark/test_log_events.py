"""What the analyses know of messages without the classes of the cluster is what these say."""

from __future__ import annotations

import re
from pathlib import Path

from trimaran.archive.spark import analyses
from trimaran.archive.spark.analyses.log_columns import TEMPLATE_NAMES
from trimaran.archive.spark.analyses.log_events import OFFSETS
from trimaran.service_api.wire.log.messages import LOG_MESSAGES
from trimaran.service_api.wire.message import registry_key

PAGE = Path(__file__).parents[4] / "docs" / "analyses.md"


def test_the_names_of_templates_are_those_of_the_messages_of_a_log() -> None:
    assert {message.TEMPLATE_ID: message.WIRE_NAME for message in LOG_MESSAGES.values()} == TEMPLATE_NAMES


def test_the_offsets_of_fields_are_those_of_the_messages() -> None:
    for template_id, offsets in OFFSETS.items():
        block = LOG_MESSAGES[registry_key(111, template_id)].LAYOUT.block

        assert offsets.items() <= {field.name: field.offset for field in block}.items()


def test_every_analysis_has_its_place_in_the_page_about_them() -> None:
    """Functions are public here by being imported into the package."""
    public = {name for name, value in vars(analyses).items() if callable(value) and not name.startswith("_")}

    assert set(re.findall(r"^#+ `(\w+)\(", PAGE.read_text(), flags=re.MULTILINE)) == public

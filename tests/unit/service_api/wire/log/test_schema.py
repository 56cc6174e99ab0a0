"""The layout that readers without pydantic use is the one of the models."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import patient
from trimaran.service_api.wire.log.fields import LOG_FIELDS
from trimaran.service_api.wire.log.messages import LOG_MESSAGES
from trimaran.service_api.wire.log.schema import MODULE, layout_source


def test_the_layout_is_written_from_the_models() -> None:
    """Write it again with `python -m trimaran.service_api.wire.log.schema`."""
    assert MODULE.read_text() == layout_source()


def test_every_message_of_a_log_has_its_fields() -> None:
    assert set(LOG_FIELDS) == {message.TEMPLATE_ID for message in LOG_MESSAGES.values()}
    assert all(offsets.timestamp is not None for offsets in LOG_FIELDS.values())


def test_reading_fields_and_slots_does_not_import_pydantic() -> None:
    modules = "trimaran.service_api.wire.log.fields, trimaran.service_api.wire.log.recording_log"
    program = f"import sys; sys.modules['pydantic'] = None; import {modules}"

    subprocess.run([sys.executable, "-c", program], check=True, timeout=patient(60))

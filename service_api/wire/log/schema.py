"""Writes `layout.py`: where the messages of a log hold their fields, taken from the models.

The problem: readers of recordings run where pydantic is not installed, such as Spark's executors, and must not pay for
importing it. The idea: the models stay the one source, and a module without imports is written from them. A test holds
the two together; `python -m trimaran.service_api.wire.log.schema` writes it again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..message import Message
from .messages import LOG_MESSAGES
from .snapshot_marker import SnapshotMarker

MODULE: Final = Path(__file__).with_name("layout.py")

_HEAD: Final = '''"""Where the messages of a log hold the fields of their blocks: written by `schema`, from the models.

Do not edit. Source: schema 111, templates 1, 20 to 25 and 100.
"""

from __future__ import annotations

from typing import Final

'''


def layout_source() -> str:
    """Write the module as the models are now."""
    messages: list[type[Message]] = [*LOG_MESSAGES.values(), SnapshotMarker]
    ids = "".join(f"{_constant(message.WIRE_NAME)}: Final = {message.TEMPLATE_ID}\n" for message in messages)
    names = "".join(f'    {_constant(message.WIRE_NAME)}: "{message.WIRE_NAME}",\n' for message in messages)
    offsets = "".join(f"    {_constant(message.WIRE_NAME)}: {{\n{_offsets(message)}    }},\n" for message in messages)
    counts = "".join(f"    {_constant(message.WIRE_NAME)}: {len(message.LAYOUT.var_data)},\n" for message in messages)
    return (
        f"{_HEAD}LOG_SCHEMA_ID: Final = {SnapshotMarker.SCHEMA_ID}\n"
        f"LOG_SCHEMA_VERSION: Final = {SnapshotMarker.SCHEMA_VERSION}\n\n"
        f"{ids}\n"
        f"MESSAGE_NAMES: Final = {{\n{names}}}\n"
        '"""The messages by template id, as the schema names them."""\n\n'
        f"FIELD_OFFSETS: Final = {{\n{offsets}}}\n"
        '"""By template id and name: where in its block a message has a field, in bytes."""\n\n'
        f"VAR_DATA_COUNTS: Final = {{\n{counts}}}\n"
        '"""By template id: the fields of variable length after its block, each with its length before it."""\n'
    )


def _constant(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def _offsets(message: type[Message]) -> str:
    return "".join(f'        "{field.name}": {field.offset},\n' for field in message.LAYOUT.block)


if __name__ == "__main__":
    MODULE.write_text(layout_source())

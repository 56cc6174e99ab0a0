"""What every SBE message begins with, and the null values of its numbers: for readers that need no models.

Nothing here imports pydantic, so that a process that only looks at recorded bytes, such as an executor of Spark, needs
neither the library nor the time it takes to load.
"""

from __future__ import annotations

import struct
from typing import Final

MESSAGE_HEADER: Final = struct.Struct("<HHHH")
"""block_length, template_id, schema_id, version."""

INT64_NULL: Final = -(1 << 63)
INT32_NULL: Final = -(1 << 31)
UINT8_NULL: Final = 255
UINT16_NULL: Final = 65535

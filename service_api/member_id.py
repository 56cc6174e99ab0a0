"""The id of a member as people and members write it."""

from __future__ import annotations

import re
from typing import Final

from .errors import ConfigurationError
from .types import MemberId

MEMBER_ID_MAX: Final = (1 << 31) - 1
"""What the wire holds."""

_MEMBER_ID: Final = re.compile(r"[0-9]{1,10}")


def parse_member_id(text: str) -> MemberId:
    """Read a member id from 0 to `MEMBER_ID_MAX`.

    Raises:
        ConfigurationError: the text is none; the caller knows whose fault that is.
    """
    if not _MEMBER_ID.fullmatch(text) or int(text) > MEMBER_ID_MAX:
        raise ConfigurationError(f"bad member id: member_id={text!r} expected a whole number, at most {MEMBER_ID_MAX}")
    return MemberId(int(text))

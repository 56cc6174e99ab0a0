"""The policy of a cluster member's archive: it refuses requests that would change it.

A member's archive holds a log that the cluster agreed on, and other members copy from it. Reading it helps everybody;
editing it is the member's own affair. An archive that stands alone lets everybody do everything, unless it is given
another `AuthorisationService`.
"""

from __future__ import annotations

from typing import Final

from .requests import REQUESTS

_READING: Final = frozenset(
    (request.SCHEMA_ID, request.TEMPLATE_ID) for request, row in REQUESTS.items() if row.is_reading
)


class ReadOnly:
    """Everybody may look and replay, nobody may record, edit, or stop what others do."""

    def is_authorised(
        self, schema_id: int, template_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Whether the request changes nothing."""
        return (schema_id, template_id) in _READING

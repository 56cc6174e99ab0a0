"""Calls the user's authorisation service, and treats an exception as a refusal."""

from __future__ import annotations

import structlog

from ....service_api.authorisation import AuthorisationService
from ....service_api.users_code import calls_users_code

logger = structlog.get_logger()


class GuardedAuthorisation:
    """An authorisation service that never raises: one that does has said no, and is logged."""

    def __init__(self, service: AuthorisationService) -> None:
        self._service = service

    def __repr__(self) -> str:
        return f"<GuardedAuthorisation {type(self._service).__name__}>"

    @calls_users_code
    def is_authorised(
        self, schema_id: int, template_id: int, request_type: int | None, encoded_principal: bytes
    ) -> bool:
        """Whether the service says yes."""
        try:
            return self._service.is_authorised(schema_id, template_id, request_type, encoded_principal) is True
        except Exception:
            logger.exception("authorisation.failed", schema_id=schema_id, template_id=template_id)
            return False

"""A sink that posts entries to a URL. Needs `trimaran[webhook]`.

A batch is one POST of JSON lines. Its header `Idempotency-Key` names the positions of its first and last entry. A batch
that the receiver did not take, because it cannot be reached, is busy (429) or fails (5xx), is posted again, after
pauses of up to 10 s, for as long as it takes: what comes after it waits in the log. So an entry arrives at least once,
in order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import structlog

from ...service_api.errors import ClusterError, ConfigurationError
from .entries import LogEntry
from .rows import as_row

if TYPE_CHECKING:
    import httpx

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 10.0
_BUSY: Final = 429
_ANSWER_EXCERPT: Final = 200

_log = structlog.get_logger(__name__)


class WebhookRefusedError(ClusterError):
    """The receiver refused a batch for good."""


class WebhookSink:
    """Posts entries to a URL; use it in `async with`. `timeout_s` bounds each request."""

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        """Take the URL of the receiver.

        Raises:
            ConfigurationError: the URL is none of http, or httpx is not installed.
        """
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"url={url!r} expected http://... or https://...")
        try:
            import httpx
        except ImportError as error:
            raise ConfigurationError("webhooks need httpx: pip install 'trimaran[webhook]'") from error
        self._url: Final = url
        self._failures: Final = httpx.TransportError
        self._client: httpx.AsyncClient = httpx.AsyncClient(timeout=timeout_s)

    def __repr__(self) -> str:
        return f"<WebhookSink {self._url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def deliver(self, entries: Sequence[LogEntry]) -> None:
        """Post entries, again and again until the receiver has taken them.

        Raises:
            WebhookRefusedError: the receiver answered with a status that trying again does not change.
        """
        body = "".join(f"{json.dumps(as_row(entry))}\n" for entry in entries).encode()
        headers = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": f"{entries[0].position}-{entries[-1].position}",
        }
        pause_s = FIRST_PAUSE_S
        while (reason := await self._post(body, headers)) is not None:
            _log.warning("webhook.batch_failed", url=self._url, position=entries[0].position, reason=reason)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _post(self, body: bytes, headers: dict[str, str]) -> str | None:
        """Post once; return why it has to be done again, None if it is done."""
        try:
            answer = await self._client.post(self._url, content=body, headers=headers)
        except self._failures as error:
            return repr(error)
        if answer.is_success:
            return None
        if answer.is_server_error or answer.status_code == _BUSY:
            return f"status={answer.status_code}"
        raise WebhookRefusedError(
            f"webhook refused: url={self._url} status={answer.status_code} answer={answer.text[:_ANSWER_EXCERPT]!r}"
        )

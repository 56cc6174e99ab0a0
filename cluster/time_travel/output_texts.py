"""Outputs of services in words: messages of typed services by name and field, others as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...service_api import ClusteredService
from ...service_api.service_texts import texts_of
from .difference import OutputDifference
from .outputs import Output

_SHOWN_BYTES: Final = 64


class OutputTexts:
    """The words for what the services of a node give out."""

    def __init__(self, services: Sequence[ClusteredService]) -> None:
        self._texts = [texts_of(service) for service in services]

    def message(self, payload: bytes) -> str | None:
        """Show a payload as the message that it is; None if no service knows it."""
        return next(filter(None, (texts.message(payload) for texts in self._texts)), None)

    def handler(self, payload: bytes) -> str | None:
        """Name the method of a service that handles a message, with file and line; None if it is not known."""
        return next(filter(None, (texts.handler(payload) for texts in self._texts)), None)

    def difference(self, found: OutputDifference) -> str:
        """Say in what the outputs of two services differ: by field where both made messages of one class."""
        if found.old is not None and found.new is not None:
            pair = found.old.payload, found.new.payload
            told = next(filter(None, (texts.difference(*pair) for texts in self._texts)), None)
            if told is not None:
                return told
        return f"expected={self._content(found.old)} actual={self._content(found.new)}"

    def _content(self, output: Output | None) -> str:
        if output is None:
            return "nothing"
        if not output.payload:
            return f"deadline {output.deadline}"
        return self.message(output.payload) or repr(output.payload[:_SHOWN_BYTES])

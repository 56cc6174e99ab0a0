"""Payloads as callers give them: checked before a byte of them is anywhere."""

from __future__ import annotations

import base64

from .errors import LocalProtocolError

Payload = bytes | bytearray | memoryview


def plain_bytes(name: str, value: object) -> Payload:
    """Return a payload whose length is its number of bytes.

    Raises:
        LocalProtocolError: it is no payload, such as a str.
    """
    if isinstance(value, memoryview):
        return value if value.itemsize == 1 and value.c_contiguous and value.ndim == 1 else value.tobytes()
    if isinstance(value, bytes | bytearray):
        return value
    raise LocalProtocolError(f"{name}: type={type(value).__name__} expected bytes, bytearray or memoryview")


def encode_payload(payload: bytes) -> tuple[str, str]:
    """Return a payload as text, and how: text that can be shown is itself, anything else base64."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and text.isprintable():
        return text, "utf-8"
    return base64.b64encode(payload).decode(), "base64"

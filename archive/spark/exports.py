"""The public names of the package by module; a test compares them with what type checkers see.

An executor loads the modules that it reads with and no others.
"""

from __future__ import annotations

from typing import Final

from ...service_api.lazy_exports import lazy_exports

HOMES: Final = {
    "create_session": "session",
    "decode_payload": "decoders",
    "ensure_java": "java",
    "log_messages": "messages",
    "message_schema": "messages",
    "problems": "source.damage",
    "read_log": "hybrid",
    "register": "source.data_source",
    "ship": "shipping",
    "typed_messages": "typed_views",
    "typed_schemas": "typed_views",
}

_get, __dir__ = lazy_exports("trimaran.archive.spark", HOMES)


def __getattr__(name: str) -> object:
    if name in HOMES:
        from . import extra  # noqa: F401 - says what to install
    return _get(name)

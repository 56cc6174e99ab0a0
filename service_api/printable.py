"""Text of others on a terminal: shown, and never done.

Names in a store, notes of operators, payloads and paths may hold control characters, which move the cursor, set the
title of a window or forge a line, and bidirectional ones, which show a text in another order than it has.
"""

from __future__ import annotations

import re
from typing import Final

_ADDRESS: Final = re.compile(r"(?: object)? at 0x[0-9a-f]{6,16}(?=>| [^<>]*>|$)")
_KEPT: Final = frozenset("\n\t")


def printable(text: str) -> str:
    r"""Write what a terminal would not simply show as an escape: `\x1b`, `\u202e`. Line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in _KEPT else ascii(char)[1:-1] for char in text)


def without_addresses(text: str) -> str:
    """Leave out where objects are in memory: `<Quota object at 0x7f12ab34cd56>` becomes `<Quota>`.

    An address says nothing to a reader, and makes two lines about one thing differ.
    """
    return _ADDRESS.sub("", text) if " at 0x" in text else text

"""Standard streams that are missing: a process may be started with one of descriptors 0 to 2 closed, as by `<&-`.

The next file or socket that the process opens takes the free number. What is written to standard output then goes into
it, and libuv aborts the process at its end, because it expects a stream there.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
"""Attribute of `sys` and mode, by descriptor."""


def open_missing_streams() -> None:
    """Open the null device for each of descriptors 0 to 2 that is closed; call it before anything else is opened."""
    for descriptor, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            os.set_inheritable(opened, True)  # children have standard streams, too
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))

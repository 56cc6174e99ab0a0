"""The threads of blocking clients in this process."""

from __future__ import annotations

import threading


def client_threads() -> list[threading.Thread]:
    """Return those that run.

    `threading` also lists, for ever, one whose `start` an interrupt has ended before there was a thread.
    """
    return [thread for thread in threading.enumerate() if thread.name == "trimaran-client" and thread.is_alive()]

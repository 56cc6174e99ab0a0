"""`quorate archive`: the archive's commands, with `dump --messages` knowing the messages of a cluster's log."""

from __future__ import annotations

from typing import Final

from archive.tool import build_app
from service_api.wire.message import MESSAGES

from .. import messages
from .import_directory import import_directories

app: Final = build_app(MESSAGES)
app.command("import")(import_directories)

KNOWN_MESSAGES: Final = (*messages.LOG_MESSAGES.values(), *messages.CONSENSUS_MODULE_SNAPSHOT_MESSAGES.values())
"""What a log and a snapshot hold: imported for their entry in the registry."""

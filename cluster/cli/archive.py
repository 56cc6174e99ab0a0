"""`trimaran archive`: the archive's commands, with `dump --messages` knowing the messages of logs and snapshots."""

from __future__ import annotations

from typing import Final

from ...archive.reading.message_view import StreamContent, Vocabulary
from ...archive.tool.app import build_archive_app
from ...service_api.types import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    LOG_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
)
from ...service_api.wire.message import MESSAGES, Message
from .. import messages
from .interchange.export_aeron import export_directory
from .interchange.import_aeron import import_directories


def _ends_snapshot(message: Message) -> bool:
    """Whether the container's part of a service's snapshot ends with this message; the application's follows."""
    return isinstance(message, messages.SnapshotMarker) and message.mark is messages.SnapshotMark.END


VOCABULARY: Final = Vocabulary(
    MESSAGES,
    {
        LOG_STREAM_ID: StreamContent(messages.LOG_MESSAGES),
        CONSENSUS_MODULE_SNAPSHOT_STREAM_ID: StreamContent(messages.CONSENSUS_MODULE_SNAPSHOT_MESSAGES),
        SERVICE_SNAPSHOT_STREAM_ID: StreamContent(messages.SERVICE_SNAPSHOT_MESSAGES, is_last=_ends_snapshot),
    },
)
"""What a member's recordings hold."""

app: Final = build_archive_app(VOCABULARY)
app.command(
    "import", epilog="Example: trimaran archive import /var/lib/aeron/node0 --to trimaran-data/node-0 --dry-run"
)(import_directories)
app.command("export-aeron", epilog="Example: trimaran archive export-aeron trimaran-data/node-0 aeron/node0 --dry-run")(
    export_directory
)

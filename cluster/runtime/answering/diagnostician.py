"""Answers diagnosis requests: makes documents of a member's error log, newest log lines, settings and metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ....archive.format.error_records import error_records
from ....service_api.access.permissions import Permission
from ....service_api.cluster_id import format_cluster_id
from ....service_api.documents.document import read_document
from ...core.consensus_module import ConsensusModule
from ...documents.diagnosis import (
    ANSWER_LIMIT_BYTES,
    TEXT_LIMIT,
    Diagnosis,
    DiagnosisRequest,
    DiagnosisTopic,
    ErrorRow,
    LogLineRow,
    without_secrets,
)
from ...settings.config import NodeConfig
from ...settings.config_layers import setting_kind
from ..files.error_log import DistinctError, decode_errors
from ..files.process_log import ProcessLog
from ..links.document_server import DocumentRow, answering_once

RowT = TypeVar("RowT", ErrorRow, LogLineRow)

_ROWS_LIMIT_BYTES: Final = ANSWER_LIMIT_BYTES // 2
"""How much the rows of an answer may have together; of more the oldest are left out."""


class Diagnostician:
    """Makes the documents of `trimaran.cluster.documents.diagnosis` about one member."""

    def __init__(
        self,
        module: ConsensusModule,
        config: NodeConfig,
        *,
        read_error_area: Callable[[], bytes],
        render_metrics: Callable[[], bytes],
    ) -> None:
        self._module = module
        self._config = config
        self._read_error_area = read_error_area
        self._render_metrics = render_metrics
        self.process_log: ProcessLog | None = None
        """The log of this process; None where the process is not a member's alone."""

    def __repr__(self) -> str:
        return f"<Diagnostician {self._module!r}>"

    @property
    def row(self) -> DocumentRow:
        """How requests of callers are answered."""
        return DocumentRow(answering_once(self.answer), self._find_permission)

    async def answer(self, request: bytes) -> bytes:
        """Make the document that was asked for.

        Raises:
            RemoteProtocolError: it is no request, or one of another schema version.
        """
        return self.describe(read_document(DiagnosisRequest, request)).model_dump_json().encode()

    def describe(self, request: DiagnosisRequest) -> Diagnosis:
        """Make the document about a topic."""
        ctx, log = self._module.ctx, self.process_log
        found = Diagnosis(
            answered_by=ctx.config.member_id,
            cluster_id=format_cluster_id(ctx.cluster_id),
            group=ctx.config.group.label,
            log_level=None if log is None else log.level,
        )
        match request.topic:
            case DiagnosisTopic.ERRORS:
                known = decode_errors(error_records(self._read_error_area()))
                errors = [error for error in known if _fits(error, request)]
                rows = [_error_row(error) for error in errors[-request.limit :]]
                return found.model_copy(update={"errors": _newest(rows), "total_count": len(errors)})
            case DiagnosisTopic.LINES:
                lines = [
                    LogLineRow(time_ms=line.time_ms, level=line.level, event=line.event, fields=line.fields)
                    for line in (() if log is None else log.lines)
                    if line.time_ms >= request.since_ms and request.level.includes(line.level)
                ]
                return found.model_copy(update={"lines": _newest(lines[-request.limit :]), "total_count": len(lines)})
            case DiagnosisTopic.SETTINGS:
                return found.model_copy(update={"settings": show_settings(self._config)})
            case DiagnosisTopic.METRICS:
                return found.model_copy(update={"metrics": self._render_metrics().decode(errors="replace")})

    def _find_permission(self, request: bytes) -> Permission:
        """Return what the caller has to be allowed for a request.

        Raises:
            RemoteProtocolError: it is no request, or one of another schema version.
        """
        read_document(DiagnosisRequest, request)
        return Permission.DIAGNOSIS


def show_settings(config: NodeConfig) -> dict[str, str]:
    """Write every setting as a file would give it, without secrets."""
    return {
        name: without_secrets(setting_kind(name).show(getattr(config, name)))[:TEXT_LIMIT]
        for name in NodeConfig.model_fields
    }


def _fits(error: DistinctError, request: DiagnosisRequest) -> bool:
    return error.last_ms >= request.since_ms and request.level.includes(error.trouble.level)


def _error_row(error: DistinctError) -> ErrorRow:
    trouble = error.trouble
    return ErrorRow(
        count=max(0, error.observation_count),
        first_ms=error.first_ms,
        last_ms=error.last_ms,
        level=trouble.level,
        event=trouble.event,
        kind=trouble.kind,
        place=trouble.place,
        message=trouble.message[:TEXT_LIMIT],
        trace=trouble.trace[:TEXT_LIMIT],
    )


def _newest(rows: Sequence[RowT]) -> list[RowT]:
    """Return the newest rows, which come last, as many as an answer may hold."""
    left_bytes, kept = _ROWS_LIMIT_BYTES, list[RowT]()
    for row in reversed(rows):
        left_bytes -= len(row.model_dump_json().encode())
        if left_bytes < 0:
            break
        kept.append(row)
    return kept[::-1]

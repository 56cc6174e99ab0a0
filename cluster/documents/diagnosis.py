"""The diagnosis documents of a running member: its errors, its newest log lines, its settings, its metrics.

A question is a connection to a member's *consensus* endpoint, or its control socket, on `DIAGNOSIS_STREAM_ID` with one
JSON document, `DiagnosisRequest`; the answer is one JSON document, `Diagnosis`. Operators and members may ask: a line
of the log may hold what a client sent. Settings have no secrets: files are named, not read, and what a URL says before
its host or after its path is left out (`without_secrets`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from pydantic import Field

from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ...service_api.documents.document import ClusterIdLine, Count, Document, DocumentPart, Id, Line
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.types import DIAGNOSIS_STREAM_ID
from .query import expect_cluster, query_document, read_answer

ROW_LIMIT: Final = 1000
ANSWER_LIMIT_BYTES: Final = 8 << 20
"""The longest frame that is taken for an answer. A member gives less: the newest rows, up to about half of it."""
TEXT_LIMIT: Final = 16_384
"""The longest text of a row, in characters."""

SECRET: Final = "***"  # nosec B105: it stands for one
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_USER: Final = re.compile(r"(\w://)[^\s/@'\"]+@")
_SECRET_NAME: Final = r"(?:password|passwd|secret|token|credential|signature|access_?key|api_?key)(?!\w*_file)\w*"
_NAMED: Final = re.compile(
    rf"(?i)((?:{_SECRET_NAME}|[?&](?:key|sig))['\"]?\s*[=:]\s*)(b?\"[^\"]*\"|b?'[^']*'|[^\s&,;'\")}}]+)"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)

Text = Annotated[str, Field(max_length=TEXT_LIMIT)]


class Level(StrEnum):
    """How bad something is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    def includes(self, level: str) -> bool:
        """Return whether something of a level is at least as bad; a level that is not known is an error."""
        return _LEVELS.index(level if level in _LEVELS else "error") >= _LEVELS.index(self)


class DiagnosisTopic(StrEnum):
    """The topics that can be asked for."""

    ERRORS = "errors"
    LINES = "lines"
    SETTINGS = "settings"
    METRICS = "metrics"


class DiagnosisRequest(Document):
    """The topics that a caller asks for, and the newest `limit` errors and lines."""

    KIND: ClassVar[str] = "request"

    topic: Annotated[DiagnosisTopic, Field(strict=False)]
    since_ms: Count = 0
    """Errors that were seen, and lines that were logged, since this time, in milliseconds since the Unix epoch."""
    level: Annotated[Level, Field(strict=False)] = Level.DEBUG
    """Errors and lines of this level and above."""
    limit: Annotated[int, Field(ge=1, le=ROW_LIMIT)] = 100


class ErrorRow(DocumentPart):
    """One distinct error of a member. Times are milliseconds since the Unix epoch."""

    count: Count
    first_ms: int
    last_ms: int
    level: Text
    event: Text
    kind: Text
    place: Text
    message: Text
    trace: Text


class LogLineRow(DocumentPart):
    """One line of a member's log."""

    time_ms: int
    """Milliseconds since the Unix epoch."""
    level: Text
    event: Text
    fields: dict[str, Text]


class Diagnosis(Document):
    """The facts that a member gives to an operator who looks for a fault; only those that were asked for."""

    KIND: ClassVar[str] = "diagnosis"

    answered_by: Id
    cluster_id: ClusterIdLine | None = None
    """The cluster of that member; None while it does not know."""
    group: Line = ""
    """Which of the cluster's groups it is in, as `index/count`; empty: the cluster has no groups."""
    total_count: Count = 0
    """How many errors or lines there are that fit; the answer holds the newest of them."""
    errors: list[ErrorRow] = Field(default_factory=list)
    """The newest last."""
    lines: list[LogLineRow] = Field(default_factory=list)
    """The newest last; empty where the process of the member logs elsewhere."""
    log_level: Line | None = None
    """From which level on the member's process logs; None where it logs elsewhere."""
    settings: dict[str, Text] = Field(default_factory=dict)
    """Every setting as a file would give it, without secrets."""
    metrics: str = Field(default="", max_length=ANSWER_LIMIT_BYTES)
    """The page that Prometheus fetches."""


async def diagnose_member(
    endpoint: str,
    request: DiagnosisRequest,
    timeout_s: float,
    *,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> Diagnosis:
    """Ask the member at a consensus endpoint (`host:port`); takes at most `timeout_s`.

    Raises:
        ConfigurationError: the endpoint is none.
        StatusQueryError: there was no answer to be had, or it is one of another cluster; the error says why.
    """
    payload = await query_document(
        endpoint,
        DIAGNOSIS_STREAM_ID,
        timeout_s,
        request=request.model_dump_json().encode(),
        length_limit_bytes=ANSWER_LIMIT_BYTES,
        cluster_id=cluster_id,
        network=network,
    )
    answer = read_answer(Diagnosis, payload)
    expect_cluster(answer.cluster_id, answer.group, endpoint=endpoint, expected=cluster_id)
    return answer


def without_secrets(text: str) -> str:
    """Leave out what looks like a secret: the user of a URL, values of names such as `token`, and private keys."""
    text = _PRIVATE_KEY.sub(SECRET, text)
    text = _USER.sub(rf"\1{SECRET}@", text)
    text = _BEARER.sub(rf"\1 {SECRET}", text)
    return _NAMED.sub(rf"\1{SECRET}", text)


def is_secret_name(name: str) -> bool:
    """Return whether the value of this name is left out, whatever it is."""
    return re.search(_SECRET_NAME, name, re.IGNORECASE) is not None

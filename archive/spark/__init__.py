"""Recordings as Spark DataFrames: needs `trimaran[spark]`.

Begin: `session` (create_session), `java` (a Java is found or brought), `shipping` (executors without Trimaran).
Read: `data_source` <- `options`, `filters`; `partitions` <- `boundaries`, `pruning` plan a read; `batch_reader` reads a
partition; `damage` lists problems; `hybrid` (read_log) joins it with the Parquet of an export.
Typed columns: `messages` (of the log's own messages), `typed_views` (of typed services), `decoders` (of others).

The report reads logs with `source` and runs `analyses` where no Spark is installed; nothing else here works without it.
A name is loaded when it is first asked for: an executor loads the modules that it reads with and no others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .decoders import decode_payload as decode_payload
    from .hybrid import read_log as read_log
    from .java import ensure_java as ensure_java
    from .messages import log_messages as log_messages
    from .messages import message_schema as message_schema
    from .session import create_session as create_session
    from .shipping import ship as ship
    from .source.damage import problems as problems
    from .source.data_source import register as register
    from .typed_views import typed_messages as typed_messages
    from .typed_views import typed_schemas as typed_schemas
else:
    from ...service_api.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(__name__, first="extra")  # which says what to install

"""Recordings as Spark DataFrames: needs `quorate[spark]`.

Begin: `session` (create_session), `java` (a Java is found or brought). Read: `data_source` <- `options`, `filters`;
`partitions` <- `boundaries`, `pruning` plan a read; `batch_reader` reads a partition; `problems` lists damage.
Typed columns: `messages` (of the log's own messages).
Begin: `session` (create_session), `java` (a Java is found or brought).
Typed columns: `messages` (of the log's own messages), `decoders` (of what applications said).
"""

from . import extra as extra

# isort: split
from .data_source import register as register
from .decoders import decode_payload as decode_payload
from .java import ensure_java as ensure_java
from .messages import log_messages as log_messages
from .messages import message_schema as message_schema
from .problems import problems as problems
from .session import create_session as create_session

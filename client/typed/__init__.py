"""Clients of typed services: `typed_client` for asyncio, `sync_typed_client` for scripts, made with `blocking`.

`methods` are those of both, one for each message; `exchange` is what is sent and read, without I/O.
"""

from .exchange import EventReader as EventReader
from .exchange import UnknownServiceError as UnknownServiceError
from .methods import asks as asks
from .methods import calls as calls
from .sync_typed_client import SyncTypedClient as SyncTypedClient
from .typed_client import TypedClient as TypedClient

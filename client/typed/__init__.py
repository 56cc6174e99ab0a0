"""Clients of typed services: `typed_client` for asyncio and blocking, `exchange` what is sent and read, without I/O."""

from .exchange import EventReader as EventReader
from .exchange import UnknownServiceError as UnknownServiceError
from .typed_client import SyncTypedClient as SyncTypedClient
from .typed_client import TypedClient as TypedClient
from .typed_client import asks as asks
from .typed_client import calls as calls

"""Clients of the services that are ready to run, for asyncio and for scripts."""

from .counters import CountersClient as CountersClient
from .counters import SyncCountersClient as SyncCountersClient

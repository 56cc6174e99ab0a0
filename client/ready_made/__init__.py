"""Clients of the services that are ready to run, for asyncio and for scripts."""

from .counters import CountersClient as CountersClient
from .counters import SyncCountersClient as SyncCountersClient
from .kv import KvClient as KvClient
from .kv import KvTransaction as KvTransaction
from .kv import SyncKvClient as SyncKvClient
from .kv_watching import KvWatch as KvWatch
from .locks import ElectionClient as ElectionClient
from .locks import HeldLock as HeldLock
from .locks import Leading as Leading
from .locks import LocksClient as LocksClient
from .locks import LockTimeoutError as LockTimeoutError
from .locks import SyncHeldLock as SyncHeldLock
from .locks import SyncLocksClient as SyncLocksClient
from .queue import QueueClient as QueueClient
from .queue import QueueJob as QueueJob
from .queue_sync import SyncQueueClient as SyncQueueClient
from .queue_sync import SyncQueueJob as SyncQueueJob

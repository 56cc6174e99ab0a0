"""Clients of the services that are ready to run, for asyncio and for scripts."""

from .counters import CountersClient as CountersClient
from .kv import KvClient as KvClient
from .kv import KvTransaction as KvTransaction
from .kv_watching import KvWatch as KvWatch
from .locks import ElectionClient as ElectionClient
from .locks import HeldLock as HeldLock
from .locks import Leading as Leading
from .locks import LocksClient as LocksClient
from .locks import LockTimeoutError as LockTimeoutError
from .queue import QueueClient as QueueClient
from .queue import QueueJob as QueueJob
from .sync_clients import SyncCountersClient as SyncCountersClient
from .sync_clients import SyncElectionClient as SyncElectionClient
from .sync_clients import SyncHeldLock as SyncHeldLock
from .sync_clients import SyncKvClient as SyncKvClient
from .sync_clients import SyncKvTransaction as SyncKvTransaction
from .sync_clients import SyncKvWatch as SyncKvWatch
from .sync_clients import SyncLeading as SyncLeading
from .sync_clients import SyncLocksClient as SyncLocksClient
from .sync_clients import SyncQueueClient as SyncQueueClient
from .sync_clients import SyncQueueJob as SyncQueueJob

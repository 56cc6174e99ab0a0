"""Locks with fencing tokens, leases, leader election: `messages` are what clients say, `service` what members run."""

from .messages import ClaimLock as ClaimLock
from .messages import ClaimState as ClaimState
from .messages import ListLocks as ListLocks
from .messages import LockError as LockError
from .messages import LockGranted as LockGranted
from .messages import LockHolder as LockHolder
from .messages import LockState as LockState
from .messages import LockSummary as LockSummary
from .messages import ReadClaim as ReadClaim
from .messages import ReadLock as ReadLock
from .messages import ReleaseLock as ReleaseLock
from .messages import RenewLease as RenewLease
from .service import LockService as LockService

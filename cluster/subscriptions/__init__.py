"""Subscriptions to the committed log.

`subscription` reads on across members, `log_source` finds one that serves, `entries` are what is handed out. `pump`
carries them to a sink, and keeps the position in a `position_store`. `webhook` is a sink, and `redis_stream`, which
speaks to the server by `resp`. `blocking` is for code without an event loop.
"""

from .blocking import SyncSubscription as SyncSubscription
from .blocking import subscribe_blocking as subscribe_blocking
from .entries import EntryKind as EntryKind
from .entries import LogEntry as LogEntry
from .errors import NoEntryAtPositionError as NoEntryAtPositionError
from .errors import PositionBeyondEndError as PositionBeyondEndError
from .errors import PositionPrunedError as PositionPrunedError
from .errors import SubscriptionError as SubscriptionError
from .errors import SubscriptionRefusedError as SubscriptionRefusedError
from .errors import SubscriptionTimeoutError as SubscriptionTimeoutError
from .log_source import ServedBy as ServedBy
from .log_source import Start as Start
from .position_store import FilePositionStore as FilePositionStore
from .position_store import PositionStore as PositionStore
from .pump import Sink as Sink
from .pump import pump as pump
from .subscription import Subscription as Subscription
from .subscription import subscribe as subscribe

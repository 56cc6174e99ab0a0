"""What a service wants done outside the cluster.

effects   an effect: its key, and what is kept of it     protocol  what workers and operators ask and settle, in bytes
outbox    the effects of a service that are not settled
"""

from .effects import EffectKey as EffectKey
from .effects import PendingEffect as PendingEffect
from .outbox import Outbox as Outbox

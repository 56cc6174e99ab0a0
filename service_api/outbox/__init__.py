"""What a service wants done outside the cluster."""

from .outbox import Effect as Effect
from .outbox import EffectKey as EffectKey
from .outbox import Outbox as Outbox

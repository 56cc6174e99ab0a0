"""Typed services: messages as classes, handlers by class, state that is declared.

messages         Command, Query, Reply, Event, ...            handlers   @handles, @answers, @on_timer, @upcasts
declared_state   `state`, `derived`: kept, undone, compared   snapshots  the declared state in a snapshot
journal          what was there before a message              attributes what would be kept by nothing
state_dicts      dicts that write down what they change       value_checks whether a value is of its type
schema           what a type looks like in bytes, as data     codec      values and messages in bytes
context          what a handler works with                    service    TypedService
state_fields     the declared state of versions, compared     message_texts  messages in words
state_pairs      two instances, compared by what an entry changed
state_digests    the digest of a large state, in pieces
outboxes         effects outside, as declared state           handler_cluster `ctx.cluster`, whose calls wait
"""

from . import message_texts as _message_texts  # noqa: F401  # says how messages of typed services are shown
from . import state_pairs as _state_pairs  # noqa: F401  # says in what two instances of them differ
from .context import Context as Context
from .declared_state import derived as derived
from .declared_state import state as state
from .handlers import answers as answers
from .handlers import handles as handles
from .handlers import on_timer as on_timer
from .handlers import upcasts as upcasts
from .messages import Command as Command
from .messages import Effect as Effect
from .messages import Event as Event
from .messages import Query as Query
from .messages import Reply as Reply
from .messages import ServiceError as ServiceError
from .messages import TimerMessage as TimerMessage
from .outboxes import outbox as outbox
from .service import TypedService as TypedService

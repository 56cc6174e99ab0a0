"""Outboxes of a typed service: declared as state, so what a failed command added is undone with it.

    class Shop(TypedService):
        payments: Outbox[Charge] = outbox()

The idea: the content is a dict of the state like any other, with the key of an effect and what is kept of it. So it is
written down, undone, compared, in snapshots and read by names after a change, without a line that is about outboxes.
The attribute of the service is a view of that dict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import make_dataclass
from typing import Any, Final, Protocol, TypeVar, get_args, get_origin

from ..errors import ConfigurationError, LocalProtocolError
from ..outbox.effects import EffectKey, OutboxEntry
from ..outbox.outbox import EFFECT_LIMIT, Outbox, check_outbox
from .codec import MessageCodec, schema_to_bytes
from .declared_field import StateField
from .journal import MISSING
from .messages import Effect
from .value_checks import plain

E = TypeVar("E", bound=Effect)

_FORM: Final = "expected a class of effects: `payments: Outbox[Charge] = outbox()` with `class Charge(Effect)`"


class EffectOwner(Protocol):
    """The context of a service: it numbers effects."""

    @property
    def payload_limit_bytes(self) -> int:
        """The longest answer to a query."""

    def make_effect_key(self) -> EffectKey:
        """Return the key of the next effect."""


class OutboxField(StateField):
    """A declared outbox. `outbox` makes it."""

    effect: type[Effect]
    codec: MessageCodec[Any]
    entry_kind: type[OutboxEntry[Any]]
    schema: tuple[str, bytes]

    def __init__(self, effect_limit: int) -> None:
        super().__init__(MISSING, None)
        self.effect_limit = effect_limit

    def __get__(self, service: Any, owner: type) -> Any:
        return self if service is None else DeclaredOutbox(self, service)

    def __set__(self, service: Any, value: object) -> None:
        raise LocalProtocolError(f"{type(service).__name__}.{self.name}: an outbox is not assigned; use its `add`")

    def bind(self, annotation: Any, where: str) -> Any:
        """Take the annotation; return the type of the dict that holds the content.

        Raises:
            ConfigurationError: it is no outbox of a class of effects.
        """
        annotation = plain(annotation)
        effect = get_args(annotation)[0] if get_origin(annotation) is Outbox else None
        if not (isinstance(effect, type) and issubclass(effect, Effect)):
            raise ConfigurationError(f"{where}: annotation={annotation!r} {_FORM}")
        check_outbox(self.name, self.effect_limit)
        self.effect, self.codec = effect, MessageCodec(effect)
        self.schema = self.codec.name, schema_to_bytes(self.codec.schema)
        # The class is in messages of errors and in the schema of the state, by the name of the effect alone.
        self.entry_kind = make_dataclass(
            f"{self.codec.name}Entry", [("effect", effect)], bases=(OutboxEntry,), frozen=True
        )
        return dict.__class_getitem__((tuple[int, int], self.entry_kind))


def outbox(*, effect_limit: int = EFFECT_LIMIT) -> Any:
    """Declare an outbox: what a service wants done outside the cluster, in order, each at least once.

        class Charge(Effect):
            seat: int
            amount: int

        class Shop(TypedService):
            payments: Outbox[Charge] = outbox()

    A handler adds with `ctx.effect(Charge(5, 20))` or `self.payments.add(Charge(5, 20))`. If the handler raises,
    nothing was added. A worker does the effects: `trimaran.OutboxWorker`. At most `effect_limit` are kept, those that
    were given up among them; a handler that adds one more gets a `BackPressureError`.
    """
    return OutboxField(effect_limit)


class DeclaredOutbox(Outbox[E]):
    """The outbox of one typed service; its content is a dict of the state."""

    def __init__(self, field: OutboxField, service: Any) -> None:
        self.name, self.effect_limit = field.name, field.effect_limit
        self.field = field
        self._service = service

    @property
    def entries(self) -> dict[tuple[int, int], OutboxEntry[E]]:
        """All effects by log position and number."""
        content: dict[tuple[int, int], OutboxEntry[E]] = self._service.__dict__[self.name]
        return content

    @property
    def _schema(self) -> tuple[str, bytes]:
        return self.field.schema

    @property
    def _owner(self) -> EffectOwner:
        owner: EffectOwner = self._service.effect_owner()
        return owner

    @property
    def _payload_limit_bytes(self) -> int:
        return self._owner.payload_limit_bytes - len(self._schema[1])

    def _check_effect(self, effect: Any) -> tuple[OutboxEntry[Any], int]:
        if type(effect) is not self.field.effect:
            raise LocalProtocolError(
                f"outbox={self.name}: type={type(effect).__name__} expected {self.field.effect.__name__}"
            )
        return self._make_entry(effect, 0, ""), len(self.field.codec.check(effect))

    def _make_entry(self, effect: Any, attempt_count: int, reason: str) -> OutboxEntry[Any]:
        return self.field.entry_kind(effect, attempt_count, reason)

    def _encode_effect(self, effect: Any) -> bytes:
        return self.field.codec.encode(effect)

    def _make_key(self) -> EffectKey:
        return self._owner.make_effect_key()


def outbox_for(outboxes: Iterable[DeclaredOutbox[Any]], effect: Effect) -> DeclaredOutbox[Any]:
    """Find the outbox of a service that takes an effect.

    Raises:
        LocalProtocolError: none does, or several do; says what to write.
    """
    found = [each for each in outboxes if each.field.effect is type(effect)]
    if len(found) == 1:
        return found[0]
    name = type(effect).__name__
    if not found:
        raise LocalProtocolError(f"no outbox takes {name}; declare one: `effects: Outbox[{name}] = outbox()`")
    names = ", ".join(each.name for each in found)
    raise LocalProtocolError(f"outboxes={names} all take {name}; say which one: `self.{found[0].name}.add(...)`")

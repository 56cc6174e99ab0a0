"""Compares the states of members that run different code, field by field.

The problem: while an upgrade is in progress, members run different code. New code may declare more fields, so the
digest of a whole state is another one although nothing is wrong, and `digest_comparison` compares members with equal
code alone. But this is the time in which states come to differ.

The idea: members with different code tell each other the digest of each field of their services' states, at the same
positions. What both declare, by name and type, must be equal; a field that only one of them declares is not compared.
A difference goes to the log, the status and health, and stops nobody: which code is right, an operator must decide. It
stays until the member that differs has the same code as this one, or another process.

A member learns from `ServiceDigest` that another one runs other code. So members with equal code send nothing here.

Bounds: of each member, the fields at its `KEPT_COUNT` newest places; `FIELD_LIMIT` fields with texts of `_TEXT_LIMIT`
characters at each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from ....service_api.types import MemberId
from ...messages.digests import FIELD_LIMIT, FieldDigest, StateFields
from .. import effects as fx
from ..context import ConsensusContext
from ..events import LinkChanged
from ..vocabulary.divergence import FieldDifference

KEPT_COUNT: Final = 64
"""Places of which a member's fields are kept."""

_TEXT_LIMIT: Final = 120
_DIGEST_LIMIT: Final = 64


T = TypeVar("T")


class _Place(NamedTuple):
    log_position: int
    service_id: int


class _Found(NamedTuple):
    """What one member found in a field."""

    type_digest: int
    digest: bytes
    value: str


_Fields = Mapping[str, _Found]


class FieldComparison:
    """One member's part in the comparison."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self._own: OrderedDict[_Place, Sequence[FieldDigest]] = OrderedDict()
        self._told: dict[MemberId, OrderedDict[_Place, _Fields]] = {}
        """What each member whose code differs has told."""
        self._differences: dict[tuple[int, str], FieldDifference] = {}
        """By service and field."""
        ctx.link_listeners.append(self._on_link)

    def __repr__(self) -> str:
        return f"<FieldComparison with={[*self._told]} differences={[*self._differences.values()]}>"

    @property
    def differences(self) -> list[FieldDifference]:
        """The fields in which members of the cluster differ from this one."""
        members = self._ctx.members.keys()
        return [each for each in self._differences.values() if len(each.values.keys() & members) > 1]

    def on_replay_fields(self, service_id: int, log_position: int, fields: Sequence[FieldDigest]) -> None:
        """Take the fields of this member's service: it has delivered the log up to here."""
        if self._ctx.is_before_skip(log_position):
            return
        place = _Place(log_position, service_id)
        _keep(self._own, place, fields)
        for member_id, told in self._told.items():
            self._send(member_id, place, fields)
            if place in told:
                self._compare(member_id, place, told[place])

    def note_code(self, member_id: MemberId, code_digest: int) -> None:
        """Take which code another member runs."""
        if code_digest == self._ctx.config.code_digest:
            self._forget(member_id)
        elif member_id not in self._told:
            self._told[member_id] = OrderedDict()
            for place, fields in self._own.items():
                self._send(member_id, place, fields)

    def on_fields(self, message: StateFields) -> None:
        """Take the fields that another member tells."""
        member_id, place = MemberId(message.member_id), _Place(message.log_position, message.service_id)
        self.note_code(member_id, message.code_digest)
        if member_id not in self._told or self._ctx.is_before_skip(place.log_position):
            return
        theirs = {
            each.name[:_TEXT_LIMIT]: _Found(each.type_digest, each.digest[:_DIGEST_LIMIT], each.value[:_TEXT_LIMIT])
            for each in message.fields[:FIELD_LIMIT]
        }
        _keep(self._told[member_id], place, theirs)
        self._compare(member_id, place, theirs)

    def _on_link(self, event: LinkChanged) -> None:
        if not event.is_up:
            self._forget(event.member_id)  # its next process may run other code

    def _forget(self, member_id: MemberId) -> None:
        self._told.pop(member_id, None)
        for key, difference in [*self._differences.items()]:
            difference.values.pop(member_id, None)
            if len(difference.values) < 2:
                del self._differences[key]

    def _send(self, member_id: MemberId, place: _Place, fields: Sequence[FieldDigest]) -> None:
        config = self._ctx.config
        message = StateFields(
            member_id=config.member_id,
            service_id=place.service_id,
            code_digest=config.code_digest,
            log_position=place.log_position,
            fields=tuple(fields),
        )
        self._ctx.send(member_id, message)

    def _compare(self, member_id: MemberId, place: _Place, theirs: _Fields) -> None:
        for mine in self._own.get(place, ()):
            found = theirs.get(mine.name)
            if found is None or found.type_digest != mine.type_digest or found.digest == mine.digest:
                continue
            key = place.service_id, mine.name
            known = self._differences.get(key)
            if known is None:
                known = FieldDifference(place.service_id, mine.name, place.log_position, {})
                known.values[self._ctx.config.member_id] = mine.value or mine.digest.hex()
                self._differences[key] = known
            if member_id not in known.values:
                is_same_place = known.log_position == place.log_position
                value = found.value or found.digest.hex()
                known.values[member_id] = value if is_same_place else f"another at {place.log_position}"
                self._ctx.emit(fx.FieldDiffered(known))


def _keep(kept: OrderedDict[_Place, T], place: _Place, fields: T) -> None:
    kept[place] = fields
    if len(kept) > KEPT_COUNT:
        kept.popitem(last=False)

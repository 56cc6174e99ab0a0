"""The gate: every connection that a process accepts passes it, on every endpoint, before anything is made for it.

A stranger's connection costs a descriptor and memory before anybody knows whose it is. So the gate counts connections
by what they are for (`Purpose`) and by the address that they come from, and each has to show in time what it is:

    pending     it is accepted, and has shown nothing yet, or not enough: it has a deadline, and makes room for others
    admitted    its owner knows whose it is (a session is open on it, a member has said its settings, ...): it stays

At a limit the oldest pending connection makes room: of the newcomer's own address, if that address has more than its
share, otherwise of all. Where none is pending the newcomer is refused. An address is one of IPv4, or a network of 64
bits of IPv6, which is what one machine can have for itself.

Who tells what: the owner of a connection calls `expect` when it has shown one thing and has to show another, `admit`
once it is known, and `leave` when it is lost. An owner whose knowledge lies elsewhere gives `is_needed`, which is
asked before a connection is ended: a client's warm connection to a follower is admitted like that, for its session is
in the log, and the follower has it. One that is not needed any more is pending again (`look`).

Descriptors are limited for the process. `DescriptorBudget` keeps so many of them from clients that members, operators,
files and recordings have theirs. What is refused is logged: the first at once, then the number, every 10 seconds. What
its owner refuses for what it has sent has a line of its own, up to `OWN_LINE_LIMIT` in this time.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Self

from ..access.connection_purpose import Purpose
from ..access.identity import STRANGER, Caller, CallerRole
from ..access.line_limiter import LINE_INTERVAL_NS, LineLimiter
from ..access.permissions import Permission, is_permitted
from ..access.rights import Rights
from ..access.shown_certificate import ShownCertificate
from .descriptors import DescriptorBudget

_LOOK_LIMIT: Final = 1_000
"""Admitted connections looked at in one go."""
_REPORT_INTERVAL_S: Final = LINE_INTERVAL_NS / 1e9

OWN_LINE_LIMIT: Final = 20
"""Lines about single connections whose owner has refused what they sent, of one event, between two reports."""

REFUSAL_KINDS: Final = (
    *("limit", "address_limit", "evicted", "deadline", "descriptors", "superseded", "handshake", "foreign_user"),
    *("other_cluster", "no_right"),
)
"""Why a connection is refused, or ended before it is anybody's."""

Warn = Callable[..., Any]  # what a logger's method returns is nobody's business
"""Logs a warning: an event, and its fields by name."""

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Calls a function so many seconds later, unless it is cancelled."""


@dataclass(slots=True, frozen=True, kw_only=True)
class GateLimits:
    """What the connections of one purpose may be."""

    connection_limit: int
    """At once, pending and admitted."""
    address_limit: int
    """Of these from one address."""
    setup_timeout_s: float | None
    """How long a new connection may take to say what it is; None where its owner has a limit of its own."""

    @classmethod
    def of_count(cls, connection_limit: int) -> Self:
        """Limit the number of connections only: their owner has limits of time."""
        return cls(connection_limit=connection_limit, address_limit=connection_limit, setup_timeout_s=None)


UNLIMITED: Final = GateLimits.of_count(1 << 30)


class AcceptedConnection:
    """One accepted connection, as the gate knows it."""

    __slots__ = (
        "_deadline",
        "_gate",
        "_given",
        "_transport",
        "address",
        "caller_detail",
        "certificate",
        "end",
        "is_admitted",
        "is_excused",
        "is_needed",
        "is_over",
        "knows_caller",
        "purpose",
        "shown",
    )

    def __init__(self, gate: ConnectionGate, purpose: Purpose, address: str) -> None:
        self.purpose: Final = purpose
        self.address: Final = address
        self.shown = STRANGER
        """Who it has shown to be, once the connection is made."""
        self.caller_detail = ""
        """What it has shown where that makes it a stranger, such as the certificate of another cluster."""
        self.certificate: ShownCertificate | None = None
        """The certificate that it has shown, where its rights end with that."""
        self.knows_caller = False
        """Whether its port tells callers apart: it is encrypted, or a control socket. In plain text it does not."""
        self.is_admitted = False
        self.is_over = False
        self.is_needed: Callable[[], bool] | None = None
        """Whether the owner knows whose it is, where nobody calls `admit`."""
        self.is_excused: Callable[[], bool] | None = None
        """Whether the peer cannot show anything just now, because nobody reads it: its deadline begins again."""
        self.end: Callable[[str], None] = self._abort
        """Ends the connection, with the reason; its owner may have a better way."""
        self._gate = gate
        self._given: tuple[Permission, ...] = ()
        """The permissions that its caller was told of."""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<AcceptedConnection {self.purpose.value} from={self.address} admitted={self.is_admitted}>"

    def identify(self, caller: Caller, detail: str = "", certificate: ShownCertificate | None = None) -> None:
        """Take who the caller is, from a port that tells callers apart."""
        self.shown, self.caller_detail, self.knows_caller = caller, detail, True
        self.certificate = certificate

    @property
    def caller(self) -> Caller:
        """Return who the caller is now: what it has shown may have ceased to count."""
        caller, certificate = self._gate.rights.judge(self.shown), self.certificate
        if certificate is None or not certificate.refusal:
            return caller
        return replace(caller, role=CallerRole.OUTSIDER, reason=certificate.refusal)

    def may(self, permission: Permission) -> bool:
        """Return whether its caller may have something, by the table of `access.permissions`, and note what it may."""
        is_given = is_permitted(permission, self.caller, knows_caller=self.knows_caller)
        if is_given and self.knows_caller and permission not in self._given:
            self._given = (*self._given, permission)
        return is_given

    @property
    def lost_permissions(self) -> list[Permission]:
        """Return what its caller was given, and may not have any more."""
        if not self._given:
            return []
        caller = self.caller
        return [each for each in self._given if not is_permitted(each, caller, knows_caller=True)]

    def attach(self, transport: asyncio.Transport) -> None:
        """Take the transport, once it is made; one that was ended before is ended now."""
        self._transport = transport
        if self.is_over:
            transport.abort()

    def expect(self, what: str, within_s: float) -> None:
        """Give the peer so long to show something, from now on; admitted or needed by then, it stays."""
        if self.is_over:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._gate.call_later(within_s, lambda: self._on_deadline(what, within_s))

    def admit(self) -> None:
        """It is known whose it is: it has no deadline, and makes room for nobody."""
        if not self.is_over and not self.is_admitted:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self._gate.on_admitted(self)

    def leave(self) -> None:
        """It is lost."""
        if not self.is_over:
            self.is_over = True
            if self._deadline is not None:
                self._deadline.cancel()
            self._gate.on_left(self)

    def note(self, kind: str, detail: str) -> None:
        """Count and log why it is refused, where its owner ends it."""
        self._gate.note(self.purpose, kind, self.address, detail)

    def log_ended(self, event: str, reason: str, **fields: Any) -> None:
        """Log that its owner ends it for what it has sent, or has not; the log of a flood is bounded."""
        self._gate.log_ended(self, event, reason, fields)

    def refuse(self, kind: str, detail: str) -> None:
        """End it, and log why."""
        if not self.is_over:
            self.note(kind, detail)
            self.leave()
            self.end(detail)

    def _abort(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _on_deadline(self, what: str, within_s: float) -> None:
        self._deadline = None
        if self.is_needed is not None and self.is_needed():
            self.admit()
        elif self.is_excused is not None and self.is_excused():
            self.expect(what, within_s)
        else:
            self.refuse("deadline", f"no {what} within {within_s:g} s")


class _Crowd:
    """The connections of one purpose."""

    def __init__(self) -> None:
        self.count = 0
        self.by_address: Counter[str] = Counter()
        self.pending: dict[AcceptedConnection, None] = {}
        """The oldest first."""
        self.pending_by_address: dict[str, dict[AcceptedConnection, None]] = {}
        self.admitted: dict[AcceptedConnection, None] = {}
        """In the order in which they are looked at."""

    def add_pending(self, connection: AcceptedConnection) -> None:
        self.pending[connection] = None
        self.pending_by_address.setdefault(connection.address, {})[connection] = None

    def remove_pending(self, connection: AcceptedConnection) -> None:
        del self.pending[connection]
        of_address = self.pending_by_address[connection.address]
        del of_address[connection]
        if not of_address:
            del self.pending_by_address[connection.address]


class ConnectionGate:
    """Counts and limits what one process accepts."""

    def __init__(
        self,
        limits: Mapping[Purpose, GateLimits] | None = None,
        *,
        descriptors: DescriptorBudget | None = None,
        rights: Rights | None = None,
        warn: Warn = lambda event, **fields: None,
        call_later: CallLater | None = None,
    ) -> None:
        self._limits = {} if limits is None else dict(limits)
        self._warn = warn
        self.call_later: Final = _call_later if call_later is None else call_later
        self.descriptors: Final = descriptors
        """None where descriptors are not limited."""
        self.rights: Final = Rights() if rights is None else rights
        """The roles that callers have now, by what they show."""
        self._crowds = {purpose: _Crowd() for purpose in Purpose}
        self.refused_counts: Counter[tuple[str, str]] = Counter()
        """By purpose and kind, one of `REFUSAL_KINDS`."""
        self.arrived_count = 0
        """Connections that have asked to be let in, with those that were not."""
        self._lines = LineLimiter[tuple[str, str]]()
        self._own_lines = Counter[tuple[str, str]]()
        """By purpose and event, since the last report: connections that their owner has ended."""
        self._reports_ns = 0
        """The clock of the lines: an interval for each report."""
        self._report_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        counts = {purpose.value: crowd.count for purpose, crowd in self._crowds.items() if crowd.count}
        return f"<ConnectionGate {counts}>"

    @property
    def purposes(self) -> list[Purpose]:
        """What there are limits for."""
        return [*self._limits]

    def limits(self, purpose: Purpose) -> GateLimits:
        """Return what holds for a purpose."""
        return self._limits.get(purpose, UNLIMITED)

    def count(self, purpose: Purpose) -> int:
        """Count the connections of a purpose."""
        return self._crowds[purpose].count

    def pending_count(self, purpose: Purpose) -> int:
        """Count those of them that are not known to be anybody's; some may be by now."""
        return len(self._crowds[purpose].pending)

    def connections(self) -> Iterator[AcceptedConnection]:
        """Yield every connection; those of one purpose in the order of their coming, admitted ones first."""
        for crowd in self._crowds.values():
            yield from [*crowd.admitted, *crowd.pending]

    # --- what a listener asks

    def enter(self, purpose: Purpose, peer: object) -> AcceptedConnection | None:
        """Let a new connection in, from a peer's socket address; None refuses it. Others may have to go for it."""
        self.arrived_count += 1
        crowd, limits, address = self._crowds[purpose], self.limits(purpose), address_of(peer)
        if crowd.by_address[address] >= limits.address_limit and not self._make_room(
            crowd.pending_by_address.get(address), "from its address"
        ):
            self.note(purpose, "address_limit", address, f"connections of one address: limit={limits.address_limit}")
            return None
        if crowd.count >= limits.connection_limit and not self._make_room(
            self._who_makes_room(crowd, address, limits), "on this endpoint"
        ):
            self.note(purpose, "limit", address, f"connections on this endpoint: limit={limits.connection_limit}")
            return None
        connection = AcceptedConnection(self, purpose, address)
        crowd.count += 1
        crowd.by_address[address] += 1
        crowd.add_pending(connection)
        if limits.setup_timeout_s is not None:
            connection.expect("setup frame", limits.setup_timeout_s)
        return connection

    def on_out_of_descriptors(self, purpose: Purpose) -> bool:
        """There was no descriptor for a new connection: free one. Whether the connection may have it.

        A client may not. For anybody else a client has to go, so that the descriptor is one of theirs; where there are
        no clients, as in an archive by itself, nobody may.
        """
        if self.descriptors is not None:
            self.descriptors.release_spare()
        clients = self._crowds[Purpose.INGRESS]
        if purpose is Purpose.INGRESS or not clients.count:
            self.note(purpose, "descriptors", "-", "every file descriptor of this process is in use")
            self._make_room(self._crowds[purpose].pending, "for want of descriptors")
            return False
        if not self._make_room(clients.pending, "for members and operators") and clients.admitted:
            newest = next(reversed(clients.admitted))
            newest.refuse("descriptors", "its descriptor is needed for members and operators: connect again later")
        return True

    def renew_spares(self) -> None:
        """Take a descriptor in hand again, where one was freed."""
        if self.descriptors is not None:
            self.descriptors.renew_spares()

    # --- what connections tell

    def on_admitted(self, connection: AcceptedConnection) -> None:
        """A connection is known to be somebody's."""
        crowd = self._crowds[connection.purpose]
        crowd.remove_pending(connection)
        crowd.admitted[connection] = None
        connection.is_admitted = True

    def on_left(self, connection: AcceptedConnection) -> None:
        """A connection is lost."""
        crowd = self._crowds[connection.purpose]
        crowd.count -= 1
        crowd.by_address[connection.address] -= 1
        if not crowd.by_address[connection.address]:
            del crowd.by_address[connection.address]
        if connection.is_admitted:
            del crowd.admitted[connection]
        else:
            crowd.remove_pending(connection)

    def look(self, within_s: float) -> None:
        """Make connections pending again that nobody needs any more, and renew the spare descriptors.

        To be called once a second; `_LOOK_LIMIT` connections of each purpose are looked at, in turn. Such a connection
        has `within_s` to be needed again.
        """
        self.renew_spares()
        for crowd in self._crowds.values():
            for connection in [*islice(crowd.admitted, _LOOK_LIMIT)]:
                del crowd.admitted[connection]
                if connection.is_needed is None or connection.is_needed():
                    crowd.admitted[connection] = None
                    continue
                connection.is_admitted = False
                crowd.add_pending(connection)
                connection.expect("session", within_s)

    def close(self) -> None:
        """Report what was not reported, and give the spare descriptors back."""
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._tell_refused()
        if self.descriptors is not None:
            self.descriptors.close()

    def note(self, purpose: Purpose, kind: str, address: str, detail: str) -> None:
        """Count a refusal; log the first of its kind, and later how many there were."""
        key = (purpose.value, kind)
        self.refused_counts[key] += 1
        if self._lines.count(key, self._reports_ns) is None:
            return
        self._warn("connection.refused", endpoint=purpose.value, kind=kind, address=address, reason=detail)
        self._plan_report()

    def log_ended(self, connection: AcceptedConnection, event: str, reason: str, fields: Mapping[str, Any]) -> None:
        """Log that the owner of a connection has ended it; beyond `OWN_LINE_LIMIT` it is only counted."""
        key = (connection.purpose.value, event)
        self._own_lines[key] += 1
        if self._own_lines[key] <= OWN_LINE_LIMIT:
            self._warn(event, address=connection.address, reason=reason, **fields)
        self._plan_report()

    # --- inside

    def _make_room(self, candidates: dict[AcceptedConnection, None] | None, what_for: str) -> bool:
        """End the oldest connection that is pending, and not needed after all. Whether there was one."""
        while candidates:
            connection = next(iter(candidates))
            if connection.is_needed is not None and connection.is_needed():
                connection.admit()
                continue
            connection.refuse("evicted", f"it makes room for newer connections {what_for}: nothing was opened on it")
            return True
        return False

    def _who_makes_room(self, crowd: _Crowd, address: str, limits: GateLimits) -> dict[AcceptedConnection, None] | None:
        own = crowd.pending_by_address.get(address)
        if own is not None and len(own) * len(crowd.by_address) > limits.connection_limit:
            return own
        return crowd.pending

    def _plan_report(self) -> None:
        if self._report_timer is None:
            self._report_timer = self.call_later(_REPORT_INTERVAL_S, self._report)

    def _report(self) -> None:
        """Log how many were refused since the last line; of what was quiet since, the first is news again."""
        self._report_timer = None
        self._tell_refused()
        self._lines.forget_quiet(self._reports_ns)
        if len(self._lines):
            self._plan_report()

    def _tell_refused(self) -> None:
        self._reports_ns += LINE_INTERVAL_NS
        for key, count in self._lines.take_untold(self._reports_ns):
            endpoint, kind = ("others", "others") if key is None else key
            self._warn("connections.refused", endpoint=endpoint, kind=kind, count=count, seconds=_REPORT_INTERVAL_S)
        own_lines, self._own_lines = self._own_lines, Counter()
        for (endpoint, event), total in own_lines.items():
            if (count := total - OWN_LINE_LIMIT) > 0:
                self._warn(
                    "connections.refused", endpoint=endpoint, kind=event, count=count, seconds=_REPORT_INTERVAL_S
                )


def address_of(peer: object) -> str:
    """Return the part of a socket address that stands for one machine; "-" for what is none."""
    if not isinstance(peer, tuple) or not peer or not isinstance(peer[0], str):
        return "-"
    host = peer[0]
    if ":" not in host:
        return host
    if host.startswith("::ffff:") and "." in host:
        return host.removeprefix("::ffff:")
    try:
        packed = ipaddress.IPv6Address(host.partition("%")[0]).packed
    except ValueError:
        return host
    return f"{ipaddress.IPv6Address(packed[:8] + bytes(8))}/64"


def _call_later(delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(delay_s, callback)

"""Who may do what: one table. Rows are what a caller can ask for, columns are what the caller is.

docs/security.md shows the same table to people, and a test compares the two.

A port tells callers apart where it is encrypted, and so does a control socket. On a port in plain text everybody is a
stranger: plain text is for loopback and for networks that are trusted, and what members say to each other passes there.
What operates a cluster does not. Members may operate, too, so that a command works with a member's own settings: it
gives nothing away, because a member that leads can do all of that and more.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from .identity import Caller, CallerRole


class Permission(StrEnum):
    """What can be allowed to a caller. The text names it in refusals, in the audit trail, and in docs/security.md."""

    SESSION = "session"
    """To ask for a client session: the authenticator decides. An identity that does not count is no help to get one."""
    PROBES = "probes"
    """`/livez` and `/readyz`."""
    METRICS = "metrics"
    """`/metrics`. Also for callers from loopback, and for those with the token."""
    STATUS = "status"
    INSPECTION = "inspection"
    """Members, open sessions, timers."""
    DIAGNOSIS = "diagnosis"
    """A member's errors, log lines, settings and metrics: lines may hold what clients sent."""
    ARCHIVE_READING = "archive reading"
    """Queries and replays."""
    ARCHIVE_WRITING = "archive writing"
    """Recording, edits, replication into it; only where an archive is served by itself: a member's refuses it all.

    Also in plain text: such an archive is there to be written to. In plain text it listens on loopback, unless the
    operator has said `--insecure-plaintext`. Where other users of the machine are not trusted, its settings close it.
    """
    SNAPSHOT_SHIPPING = "snapshot shipping"
    BACKUP = "backup"
    """To ask where log and snapshots are; what a backup then reads is archive reading."""
    MEMBER_LINK = "member link"
    """The links that carry consensus, the log, and catch-up."""
    SUSPEND = "suspend"
    RESUME = "resume"
    SNAPSHOT = "snapshot"
    SHUTDOWN = "shutdown"
    ABORT = "abort"
    SKIP_ENTRY = "skip-entry"
    CHANGE_MEMBERS = "change-members"
    TRANSFER = "transfer"
    STOP_MEMBER = "stop-member"
    SCRUB = "scrub"
    TRUST_LOG = "trust-log"
    RAISE_FEATURE_LEVEL = "raise-feature-level"
    STANDBY_SNAPSHOT = "standby-snapshot"
    LOG_LEVEL = "log-level"
    CLOSE_SESSIONS = "close-sessions"


class Row(NamedTuple):
    """Who may have one thing."""

    in_plain_text: bool
    """Whether everybody may on a port that does not tell callers apart."""
    roles: frozenset[CallerRole]


_STRANGER, _CLIENT, _OBSERVER, _OPERATOR, _MEMBER, _CONTACT, _OUTSIDER = CallerRole
_EVERYBODY: Final = frozenset(CallerRole)
_READERS: Final = frozenset({_OBSERVER, _OPERATOR, _MEMBER})
_OPERATING: Final = Row(False, frozenset({_OPERATOR, _MEMBER}))

PERMISSIONS: Final[Mapping[Permission, Row]] = {
    Permission.SESSION: Row(True, _EVERYBODY - {_CONTACT, _OUTSIDER}),
    Permission.PROBES: Row(True, _EVERYBODY),
    Permission.METRICS: Row(False, _READERS),
    Permission.STATUS: Row(True, _READERS),
    Permission.INSPECTION: Row(True, _READERS),
    Permission.DIAGNOSIS: _OPERATING,
    Permission.ARCHIVE_READING: Row(True, _READERS),
    Permission.ARCHIVE_WRITING: Row(True, frozenset({_OPERATOR, _MEMBER})),
    Permission.SNAPSHOT_SHIPPING: Row(True, frozenset({_OPERATOR, _MEMBER})),
    Permission.BACKUP: Row(True, _READERS),
    Permission.MEMBER_LINK: Row(True, frozenset({_MEMBER, _CONTACT})),
    Permission.SUSPEND: _OPERATING,
    Permission.RESUME: _OPERATING,
    Permission.SNAPSHOT: _OPERATING,
    Permission.SHUTDOWN: _OPERATING,
    Permission.ABORT: _OPERATING,
    Permission.SKIP_ENTRY: _OPERATING,
    Permission.CHANGE_MEMBERS: _OPERATING,
    Permission.TRANSFER: _OPERATING,
    Permission.STOP_MEMBER: _OPERATING,
    Permission.SCRUB: _OPERATING,
    Permission.TRUST_LOG: _OPERATING,
    Permission.RAISE_FEATURE_LEVEL: _OPERATING,
    Permission.STANDBY_SNAPSHOT: _OPERATING,
    Permission.LOG_LEVEL: _OPERATING,
    Permission.CLOSE_SESSIONS: _OPERATING,
}

ADVICE: Final = (
    "run it on the member's machine as the user that runs the member, which needs no settings; "
    "or use TLS with a certificate of such a role (docs/security.md)"
)
"""What somebody can do who was refused."""


def is_permitted(permission: Permission, caller: Caller, *, knows_caller: bool) -> bool:
    """Whether a caller may have something; `knows_caller` says whether its port tells callers apart."""
    row = PERMISSIONS[permission]
    return caller.role in row.roles or (row.in_plain_text and not knows_caller)


def describe_refusal(permission: Permission, caller: Caller) -> str:
    """Say who may have what a caller was refused: one line."""
    roles = [role for role in CallerRole if role in PERMISSIONS[permission].roles]
    return f"{permission} needs the role {' or '.join(roles)}, and the caller is {caller}"

"""How far a term may honestly be: a term that leaps is not believed.

A term is one number for the whole cluster, and the highest that anybody names is what everybody goes on from. One
message that names 2^63 - 2 would be on every disk, and no term would be left to elect a leader in. So a member believes
a term only up to `TERM_LEAP_LIMIT` above the highest that is *vouched for*:

- by this member itself: the last term of its log, the term it has on disk, and those that it stood in later;
- by another member, in an answer that nobody else could have given (`conditions`): what that one vouches for in turn.

An honest member names no term beyond that. It raises its term by one for each ballot that it stands in, and vouches
for it from then on. Between its last answer and its next message lie a second at most, and a few ballots; and a message
that is refused has it asked at once, so its next message is believed. That is why no member is ever shut out, however
long it was away: it believes any term as soon as one member vouches for it.

A stranger, who can call itself any member, but cannot answer as one, raises a term by the limit. What it raised is not
vouched for, so it cannot go on from there; only the next ballot of a member does, one election at a time. Before this,
nothing was vouched for and nothing bounded the number.

The term on disk may be one that an older version believed. It vouches for no more than `FAILED_TERM_LIMIT` terms above
the log: each failed term costs an empty entry in the recording log of every member, and so many ballots in a row that
nobody wins take months. Beyond that, a member stands only where another one vouches, and says that its vote state is
not usable: `trimaran reset-candidate-term` mends that offline.
"""

from __future__ import annotations

from typing import Final

TERM_LEAP_LIMIT: Final = 16
"""How far above the highest term that is vouched for a term is believed."""

FAILED_TERM_LIMIT: Final = 65_536
"""How far above the term of its log a member's own term may be without another member that vouches for it."""

LAST_TERM_ID: Final = (1 << 62) - 1
"""No term is beyond this, even if a member vouches for it; far from what 64 bits hold, so that it can be counted on."""


def first_vouched_term_id(log_leadership_term_id: int, candidate_term_id: int) -> int:
    """Return the highest term that a member vouches for when it starts, by its log and the term it has on disk."""
    return max(log_leadership_term_id, min(candidate_term_id, log_leadership_term_id + FAILED_TERM_LIMIT))


def is_usable(log_leadership_term_id: int, candidate_term_id: int) -> bool:
    """Return whether a member with this log and this term on disk can stand without another one that vouches."""
    return candidate_term_id <= log_leadership_term_id + FAILED_TERM_LIMIT

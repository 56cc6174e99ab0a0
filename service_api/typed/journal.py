"""What was there before the message that a typed service handles: what undoes it, and says whether it changed anything.

Three things are written down. The service's attributes, as one shallow copy: what cannot change in place is undone by
that alone. Each key of a dict that is written. And each value that can change in place, as bytes, when it is first
handed out for a message: only then may it differ afterwards.

Others may listen: they are told each note of each message, also of one that was undone, and what is changed in a dict
while no message is handled. Double execution compares what these notes name, in place of the whole state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from ..errors import LocalProtocolError

MISSING: Final = object()


class Undoing(Protocol):
    """A collection, or a field, that writes down what it changes."""

    def undo(self, key: Any, before: Any) -> bool:
        """Put back what was there before; False if it is there still."""


class Checked(Undoing, Protocol):
    """One that hands out values which can change in place."""

    def check(self, key: Any) -> None:
        """Make sure that a value that was handed out can be kept.

        Raises:
            LocalProtocolError: it is of another type than it is declared with.
        """


class Remade(Protocol):
    """A field that is made from the state again, where nothing else undoes it."""

    def remake(self, service: Any) -> None:
        """Make it of the state as it is now."""


Note = tuple[Undoing, Any, Any]
"""What was changed: where, which key, and what was there before."""


class Journal:
    """What was there before the message that is handled; shared by all state of a service."""

    __slots__ = (
        *("_append", "_attributes", "_idle", "_is_same", "_keep", "_listeners", "_notes", "_touched"),
        *("before", "handed", "handed_names", "keep", "note"),
    )

    def __init__(self, attributes: dict[str, Any], is_same: Callable[[dict[str, Any], dict[str, Any]], bool]) -> None:
        """Take the attributes of a service, its `__dict__`, and what says whether two such are the same objects."""
        self._attributes, self._is_same = attributes, is_same
        self.before: dict[str, Any] = {}
        """The attributes as they were when the message began."""
        self._notes: list[Note] = []
        self._listeners: list[list[Note]] = []
        # Bound once: they take their places at each message.
        self._append, self._idle, self._keep = self._notes.append, self._tell, self._keep_handed
        self.handed: list[tuple[Checked, Any]] = []
        """What was handed out for this message: its owner and its key, to be checked."""
        self._touched: dict[str, tuple[Remade, Any]] = {}
        self.handed_names: set[object] = set()
        """What was handed out for this message already: names of fields, and dicts' ids with keys."""
        self.note: Callable[[Note], None] = self._idle
        """Write down a change, before it is made. Outside of a message it is told only; for a query it raises."""
        self.keep: Callable[[Checked, Any, Any], None] = _ignore_handed
        """Write down a value that is handed out and can change: its owner, its key and its bytes."""

    def __repr__(self) -> str:
        return f"<Journal open={self.is_open} notes={len(self._notes)}>"

    @property
    def is_open(self) -> bool:
        """Whether a message is handled or a query is answered."""
        return self.keep is not _ignore_handed

    def begin(self) -> None:
        """Begin with a message."""
        self.before = self._attributes.copy()
        self.note, self.keep = self._append, self._keep

    def begin_query(self) -> None:
        """Begin with a query: what is to change raises."""
        self.before = self._attributes.copy()
        self.note, self.keep = _refuse, self._keep

    def touch(self, name: str, field: Remade, service: Any) -> None:
        """Note that a derived value is handed out which nothing undoes: a message that fails has it made again."""
        if self.note is self._append:
            self._touched[name] = (field, service)

    def check(self) -> None:
        """Check what was handed out.

        Raises:
            LocalProtocolError: a value is of another type than it is declared with.
        """
        for owner, key in self.handed:
            owner.check(key)

    def commit(self) -> None:
        """Keep what was changed."""
        self.note, self.keep = self._idle, _ignore_handed
        for listener in self._listeners:
            listener += self._notes
        self._notes.clear()
        if self.handed or self._touched:
            self._forget()

    def roll_back(self) -> bool:
        """Undo everything since the begin, the newest first. Whether anything had been changed."""
        if self.note is self._append:
            for listener in self._listeners:
                listener += self._notes
        self.note, self.keep = self._idle, _ignore_handed
        attributes, before = self._attributes, self.before
        is_changed = not self._is_same(attributes, before)
        if is_changed:
            attributes.clear()
            attributes.update(before)
        for owner, key, value in reversed(self._notes):
            is_changed |= owner.undo(key, value)
        self._notes.clear()
        touched = [*self._touched.values()]
        self._forget()
        for field, service in touched:
            field.remake(service)
        return is_changed

    def listen(self) -> list[Note]:
        """Return a list that gets each note from now on, until `ignore`; who listens empties it."""
        notes: list[Note] = []
        self._listeners.append(notes)
        return notes

    def ignore(self, notes: list[Note]) -> None:
        """Tell a list of `listen` no more."""
        self._listeners = [each for each in self._listeners if each is not notes]

    def _tell(self, note: Note) -> None:
        """Undo nothing: no message is handled."""
        for listener in self._listeners:
            listener.append(note)

    def _forget(self) -> None:
        self.handed.clear()
        self._touched.clear()
        self.handed_names.clear()

    def _keep_handed(self, owner: Checked, key: Any, before: Any) -> None:
        self._append((owner, key, before))
        self.handed.append((owner, key))


def _ignore_handed(owner: Checked, key: Any, before: Any) -> None:
    """Write nothing down: no message is handled."""


def _refuse(note: Note) -> None:
    raise LocalProtocolError(f"a query may not change the state: key={note[1]!r}")

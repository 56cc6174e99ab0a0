"""What a member has printed: its events, and what they say about leadership."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

Event = dict[str, Any]  # one line of JSON


def event_time_s(event: Event) -> float:
    """When a member wrote an event: epoch time in seconds, by the clock of its machine."""
    return datetime.fromisoformat(event["timestamp"]).timestamp()


@dataclass(slots=True, frozen=True)
class Leadership:
    """Who leads, and in which term."""

    leadership_term_id: int
    leader_member_id: int


class RigMemberLog:
    """The output of one run of a member: the part of a file that begins at `offset`."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self.path = path
        self._offset = offset

    @classmethod
    def at_end(cls, path: Path) -> RigMemberLog:
        """What will be printed from now on."""
        return cls(path, offset=path.stat().st_size if path.exists() else 0)

    def __repr__(self) -> str:
        return f"<RigMemberLog {self.path} offset={self._offset}>"

    def text(self) -> str:
        """Everything that was printed."""
        with self.path.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode(errors="replace")

    def other_lines(self) -> list[str]:
        """The lines that are no events, such as the reason of an end."""
        return [line for line in self.text().splitlines() if not line.startswith("{")]

    def events(self, name: str | None = None, **facts: object) -> list[Event]:
        """The events of a name, with these facts, oldest first."""
        text = self.text()
        whole = text[: text.rfind("\n") + 1]
        found = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
        return [
            event
            for event in found
            if (name is None or event["event"] == name)
            and all(event.get(fact) == value for fact, value in facts.items())
        ]

    def leadership(self) -> Leadership | None:
        """Whom the member leads or follows; None while it elects."""
        elections = [event for event in self.events() if event["event"] in ("election.started", "election.closed")]
        if not elections or elections[-1]["event"] != "election.closed":
            return None
        return Leadership(elections[-1]["leadership_term_id"], elections[-1]["leader_member_id"])

"""The typed service under the request benchmark: every command is its own reply, and is counted."""

from __future__ import annotations

from ...service_api.typed import Command, Context, Reply, TypedService, handles, state


class Numbered(Reply):
    """A number, and what fills it up."""

    number: int
    padding: bytes


class Number(Command[Numbered]):
    """The next of a session: 0, 1, 2, ..."""

    number: int
    padding: bytes


class CountOf(Command[tuple[int, int]]):
    """Asks how many of this session ran, and how many of them had run before."""


class TypedRequestService(TypedService):
    """Replies with the command. One that is not new ran twice."""

    ran: dict[int, int] = state()
    ran_twice: dict[int, int] = state()

    @handles(Number)
    def number(self, ctx: Context, message: Number) -> Numbered:
        """Count, and give back."""
        session_id = ctx.session.id
        ran = self.ran.get(session_id, 0)
        if message.number != ran:
            self.ran_twice[session_id] = self.ran_twice.get(session_id, 0) + 1
        self.ran[session_id] = ran + 1
        return Numbered(message.number, message.padding)

    @handles(CountOf)
    def count(self, ctx: Context, message: CountOf) -> tuple[int, int]:
        """Say what ran."""
        session_id = ctx.session.id
        return self.ran.get(session_id, 0), self.ran_twice.get(session_id, 0)

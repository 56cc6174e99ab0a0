"""A chat with presence: who is there is who has a session, and nobody can be there twice under one name.

trimaran up --service chat:Chat --service-dir examples --port 9000   # in one terminal
python examples/chat.py ann   # in others: what you type, the others see
"""

from __future__ import annotations

import asyncio
import sys

from trimaran import Command, Context, Event, Query, ServiceError, TypedService, answers, handles, state
from trimaran.client.typed import TypedClient, asks, calls
from trimaran.service_api import CloseReason

HISTORY_LIMIT = 100


class Line(Event):
    number: int
    room: str
    author: str
    text: str


class Presence(Event):
    room: str
    name: str
    is_there: bool


class Join(Command[list[Line]]):  # the reply is what the client has missed
    room: str
    name: str
    after: int = 0  # the number of the last line that the client has


class Say(Command[int]):
    text: str


class Who(Query[list[str]]):
    room: str


class ChatRefused(ServiceError):
    reason: str


class Chat(TypedService):
    """Rooms, the people in them by their sessions, and what was said last."""

    events = (Line, Presence)

    people: dict[int, tuple[str, str]] = state()  # room and name by session id
    history: dict[str, tuple[Line, ...]] = state()
    last_number: int = state()

    @handles(Join)
    def join(self, ctx: Context, message: Join) -> list[Line]:
        here = message.room, message.name
        if ctx.session.id in self.people:
            raise ChatRefused("you are in a room already")
        if here in self.people.values():
            raise ChatRefused(f"the name {message.name!r} is taken")
        self.people[ctx.session.id] = here
        self._tell(ctx, message.room, Presence(*here, is_there=True))
        return [line for line in self.history.get(message.room, ()) if line.number > message.after]

    @handles(Say)
    def say(self, ctx: Context, message: Say) -> int:
        if ctx.session.id not in self.people:
            raise ChatRefused("join a room first")
        room, name = self.people[ctx.session.id]
        line = Line(self.last_number + 1, room, name, message.text)
        self.last_number = line.number
        self.history[room] = (*self.history.get(room, ()), line)[-HISTORY_LIMIT:]
        self._tell(ctx, room, line)
        return line.number

    @answers(Who)
    def who(self, ctx: Context, message: Who) -> list[str]:
        return sorted(name for room, name in self.people.values() if room == message.room)

    def on_closed(self, ctx: Context, reason: CloseReason) -> None:
        """The client has left, or was not heard of for the session timeout."""
        if gone := self.people.pop(ctx.session.id, None):
            self._tell(ctx, gone[0], Presence(*gone, is_there=False))

    def _tell(self, ctx: Context, room: str, event: Event) -> None:
        for session_id, (other, _) in self.people.items():
            if other == room:
                ctx.send(event, session_id)


class ChatClient(TypedClient):
    join = calls(Join)
    say = calls(Say)
    who = asks(Who)


async def _main(name: str, room: str = "lobby") -> None:
    async with ChatClient.connect(["127.0.0.1:9000", "127.0.0.1:9010", "127.0.0.1:9020"]) as chat:

        async def show() -> None:
            print(*(f"{line.author}: {line.text}" for line in await chat.join(room, name)), sep="\n")
            async for event in chat.events(Line, Presence):
                if isinstance(event, Presence):
                    print(f"* {event.name} {'is here' if event.is_there else 'is gone'}")
                elif isinstance(event, Line):
                    print(f"{event.author}: {event.text}")

        showing = asyncio.create_task(show())
        while text := (await asyncio.to_thread(sys.stdin.readline)).strip():
            await chat.say(text)
        showing.cancel()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))

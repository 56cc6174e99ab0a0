import time

from trimaran import Command, Context, TypedService, handles, state


class Ping(Command[int]):
    number: int


class Service(TypedService):
    left_at: int = state()

    @handles(Ping)
    def ping(self, ctx: Context, message: Ping) -> int:
        return message.number

    def on_closed(self, ctx: Context, reason) -> None:
        self.left_at = int(time.time())  # expect: wall-clock

"""A service that draws."""

from __future__ import annotations

from trimaran.service_api.typed import Command, Context, TypedService, handles


class Draw(Command[str]):
    pass


class Lottery(TypedService):
    @handles(Draw)
    def draw(self, ctx: Context, message: Draw) -> str:
        return f"{ctx.random.randrange(1 << 60)} {ctx.uuid()}"

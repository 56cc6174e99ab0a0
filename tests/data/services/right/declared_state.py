from trimaran import Command, Context, TypedService, derived, handles, state


class Add(Command[int]):
    number: int


class Totals(TypedService):
    numbers: list[int] = state()
    limits: list[int] = state(factory=lambda: [1, 2])
    total: int = state(default=0)
    cache: dict[int, int] = derived(lambda totals: dict.fromkeys(totals.numbers, 0))

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.numbers.append(message.number)
        self.total += message.number
        self.cache[message.number] = self.total
        return self.total

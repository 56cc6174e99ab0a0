from trimaran import Command, Context, TypedService, handles, state


class Add(Command[int]):
    number: int


class Totals(TypedService):
    numbers: list[int] = state()
    limits: list[int] = state(factory=lambda: [1, 2])
    total: int = state(default=0)

    def on_start(self, cluster, snapshot):
        self.cache = {}
        return super().on_start(cluster, snapshot)

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.numbers.append(message.number)
        self.total += message.number
        self.cache[message.number] = self.total
        return self.total

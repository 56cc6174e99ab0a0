from trimaran import Command, Context, TypedService, handles, state


class Add(Command[int]):
    number: int


class Service(TypedService):
    numbers: list[int] = state(default=[])  # expect: mutable-default
    total: int = state()

    def __init__(self):
        self.cache = {}

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.total += message.number
        self.newest = message.number  # expect: undeclared-state
        self.cache[message.number] = self.total  # expect: undeclared-state
        return self.total

from trimaran import ClusteredService


class Account:
    def __init__(self):
        self.balance = 0
        self.reads = 0

    def read(self):
        self.reads += 1  # expect: query-writes
        return self.balance


class Service(ClusteredService):
    def __init__(self):
        self.accounts: dict[str, Account] = {}
        self.queries = 0

    def on_request(self, session, timestamp, payload):
        self.accounts[str(payload, "utf-8")] = Account()
        return b""

    def on_query(self, payload):
        self.queries += 1  # expect: query-writes
        account = self.accounts.setdefault("a", Account())  # expect: query-writes
        return f"{account.read()} {self.named('b').read()}".encode()

    def named(self, name):
        return self.accounts.get(name)

from trimaran import ClusteredService


class Answer:
    def __init__(self, text):
        self.text = text
        self.parts = []
        self.parts.append(text)


class Bank(ClusteredService):
    def __init__(self):
        self.balances: dict[str, int] = {}

    def on_request(self, session, timestamp, payload):
        self.balances[str(payload, "utf-8")] = timestamp
        return b""

    def on_query(self, payload):
        answer = Answer(str(payload, "utf-8"))
        found = [self.balances.get(answer.text, 0)]
        found.append(len(self.balances))
        counts = {}
        counts["all"] = sum(found)
        return repr(counts).encode()

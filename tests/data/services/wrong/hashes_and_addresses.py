from trimaran import ClusteredService


class Order:
    def __init__(self, name):
        self.name = name


class Service(ClusteredService):
    def on_request(self, session, timestamp, payload):
        order = Order(str(payload))
        shard = hash(order.name) % 16  # expect: hash
        number = id(order)  # expect: object-identity
        ordered = sorted([order], key=id)  # expect: object-identity
        return f"{shard} {number} {ordered}".encode()

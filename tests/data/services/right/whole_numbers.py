from decimal import Decimal
from math import floor, isqrt, sqrt

from trimaran import ClusteredService


class Sums(ClusteredService):
    def __init__(self):
        self.sum = Decimal(0)

    def on_request(self, session, timestamp, payload):
        self.sum += Decimal(str(payload, "utf-8"))
        power = 2**64 + isqrt(len(payload)) ** 2
        return str((self.sum, power, floor(sqrt(2.25)))).encode()

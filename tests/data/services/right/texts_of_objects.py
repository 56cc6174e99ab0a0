from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from trimaran import ClusteredService


class Side(Enum):
    BUY = 1


@dataclass
class Order:
    side: Side
    price: int


class Fill(NamedTuple):
    price: int


class Named:
    def __repr__(self):
        return "<Named>"


class Book(ClusteredService):
    def on_request(self, session, timestamp, payload):
        return f"{Order(Side.BUY, 3)} {Fill(2)} {Named()} {hash(3)}".encode()

"""The services that are measured, by the names that `trimaran node --service` takes."""

from collections.abc import Mapping
from typing import Final

ECHO_SERVICE: Final = "trimaran.benchmarks.services.echo:EchoService"
REQUEST_SERVICE: Final = "trimaran.benchmarks.services.request:RequestService"
TYPED_REQUEST_SERVICE: Final = "trimaran.benchmarks.services.typed_request:TypedRequestService"
SLOW_SERVICE: Final = "trimaran.benchmarks.services.slow:SlowService"
STATE_SERVICE: Final = "trimaran.benchmarks.services.state:StateService"
STATE_BY_COPY_SERVICE: Final = "trimaran.benchmarks.services.state:StateByCopyService"
FAN_OUT_SERVICE: Final = "trimaran.benchmarks.services.fan_out:FanOutService"
ORDERS_SERVICES: Final[Mapping[str, str]] = {
    "message": "trimaran.benchmarks.services.orders:OrdersByMessage",
    "pieces": "trimaran.benchmarks.services.orders:OrdersInPieces",
    "copy": "trimaran.benchmarks.services.orders:OrdersByCopy",
}
"""By the way in which the orders are written to a snapshot."""
WATCHED_ORDERS_SERVICES: Final[Mapping[str, str]] = {
    "pieces": "trimaran.benchmarks.services.turns:WatchedOrdersInPieces",
    "copy": "trimaran.benchmarks.services.turns:WatchedOrdersByCopy",
}
"""The same orders, with a watch on the turns of the loop."""

"""The services that are measured, by the names that `trimaran node --service` takes."""

from typing import Final

ECHO_SERVICE: Final = "trimaran.benchmarks.services.echo:EchoService"
REQUEST_SERVICE: Final = "trimaran.benchmarks.services.request:RequestService"
TYPED_REQUEST_SERVICE: Final = "trimaran.benchmarks.services.typed_request:TypedRequestService"
STATE_SERVICE: Final = "trimaran.benchmarks.services.state:StateService"
FAN_OUT_SERVICE: Final = "trimaran.benchmarks.services.fan_out:FanOutService"

"""Where the groups of a member listen: each port of group K is the member's own port plus K x 100.

A hundred apart, so that ten members whose base ports are ten apart fit between two groups on one machine.
"""

from __future__ import annotations

from typing import Final

from ..endpoint import PORT_MAX, Endpoint
from ..errors import ConfigurationError

GROUP_PORT_STRIDE: Final = 100


def group_endpoint(endpoint: str, group_index: int) -> str:
    """Return where a group listens, given where group 0 does; port 0, which means any, stays.

    Raises:
        ConfigurationError: the endpoint is none, or the port would be too high.
    """
    base = Endpoint.parse(endpoint, may_be_ephemeral=True)
    port = base.port + GROUP_PORT_STRIDE * group_index
    if base.port == 0:
        return endpoint
    if port > PORT_MAX:
        raise ConfigurationError(
            f"endpoint={endpoint} of group 0 puts group {group_index} at port {port}, expected at most {PORT_MAX}: "
            "choose a lower port, or fewer groups"
        )
    return str(Endpoint(base.host, port))

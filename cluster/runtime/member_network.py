"""The network stack of a member, by its settings: TLS, or plain text where nobody else can listen.

In plain text any process that can connect is believed, whatever it says that it is. So a member whose endpoints other
machines reach does not start without TLS, unless a setting says that this is wanted; each start says what it means.
"""

from __future__ import annotations

import structlog

from trimaran.service_api import ConfigurationError
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.tls import TlsStack
from trimaran.service_api.transport import SOCKETS, NetworkStack
from trimaran.service_api.types import MemberId

from ..settings.config import NodeConfig

logger = structlog.get_logger()


def make_network(config: NodeConfig) -> NetworkStack:
    """Make the stack of a member. Blocks while it reads files.

    Raises:
        ConfigurationError: the user's: a file of TLS cannot be used, or there is no TLS where there has to be.
    """
    tls = config.tls
    if tls is not None:
        return TlsStack(tls, cluster_id=config.cluster_id, member_id=MemberId(config.member_id), is_watched=True)
    exposed = [endpoint for endpoint in config.me.endpoints if not Endpoint.parse(endpoint).is_loopback]
    if exposed and not config.insecure_plaintext:
        raise ConfigurationError(
            f"endpoints={','.join(exposed)} are no loopback addresses, and there is no TLS: any process that can "
            "connect could vote, lead and stop the cluster; give tls_certificate, tls_key and tls_authorities "
            "(`trimaran certs init` makes them for development), or say --insecure-plaintext"
        )
    if exposed:
        logger.warning(
            "node.plaintext",
            endpoints=exposed,
            reason="insecure_plaintext: no TLS; any process that can connect to these is believed, and everything can "
            "be read and changed on its way",
        )
    return SOCKETS

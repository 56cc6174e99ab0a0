"""The network stack of a member, by its settings; where it is in plain text, each start says what that means."""

from __future__ import annotations

import structlog

from ....service_api.net.transport import NetworkStack
from ....service_api.tls import serving_network
from ....service_api.types import MemberId
from ...settings.config import NodeConfig

logger = structlog.get_logger()


def make_network(config: NodeConfig) -> NetworkStack:
    """Make the stack of a member. Blocks while it reads files.

    Raises:
        ConfigurationError: the user's, as `serving_network`.
    """
    return serving_network(
        config.tls,
        cluster_id=config.cluster_id,
        member_id=MemberId(config.member_id),
        danger="vote, lead and stop the cluster",
        remedy="tls_certificate, tls_key and tls_authorities (`trimaran certs init` makes them for development)",
        on_plaintext=_warn if config.insecure_plaintext else None,
    )


def _warn(exposed: str) -> None:
    logger.warning(
        "node.plaintext",
        endpoint=exposed,
        reason="insecure_plaintext: no TLS; any process that can connect to this endpoint is believed, and everything "
        "can be read and changed on its way",
    )

"""The files with secrets that a member reads again when they change: of passwords, the metrics' token, and TLS."""

from __future__ import annotations

from typing import Final

import structlog

from ....service_api.net.connection_gate import ConnectionGate
from ....service_api.net.transport import NetworkStack
from ....service_api.tls import TlsStack
from ....service_api.tls.watch import TlsWatch
from ...auth.file_watch import watch_file
from ...auth.metrics_access import load_token
from ...auth.secrets_file import SecretsFile
from ...settings.config import NodeConfig
from .activities import ActivityScope

logger = structlog.get_logger()


class SecretFiles:
    """What was last read of each; None where no setting names one."""

    def __init__(self, config: NodeConfig, network: NetworkStack) -> None:
        """Read them. Blocks.

        Raises:
            ConfigurationError: the user's: one cannot be used.
        """
        self.secrets: Final = watch_file(config.secrets_file, SecretsFile.load, "secrets")
        self.metrics_token: Final = watch_file(config.metrics_token_file, load_token, "metrics_token")
        self._network = network

    def __repr__(self) -> str:
        return f"<SecretFiles {self.secrets!r} {self.metrics_token!r}>"

    def watch(self, tasks: ActivityScope, gate: ConnectionGate) -> None:
        """Read each again whenever it has changed, from now on; connections of the gate end with their certificates."""
        if self.secrets is not None:
            tasks.create_task(self.secrets.run(), name="secrets-watch")
        if self.metrics_token is not None:
            tasks.create_task(self.metrics_token.run(), name="metrics-token-watch")
        if isinstance(self._network, TlsStack):
            watch = TlsWatch(self._network, gate, info=logger.info, error=logger.error)
            tasks.create_task(watch.run(), name="tls-watch")

"""The asyncio client of a Quorate cluster.

cluster_client   ClusterClient, what applications use      egress       listener, messages, queue
connection       asyncio shell: sockets, timer, writes     config       settings, errors: what connect raises
protocol         the session's state machine, sans-IO; its parts: leader_search, member_link,
                 ingress_publisher (bytes out), egress_adapter (bytes in), effects
"""

from .cluster_client import ClusterClient as ClusterClient
from .config import ClientConfig as ClientConfig
from .egress import EgressListener as EgressListener
from .egress import EgressMessage as EgressMessage
from .errors import ConnectRejectedError as ConnectRejectedError
from .errors import ConnectTimeoutError as ConnectTimeoutError

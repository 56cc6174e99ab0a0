"""TLS for everything that listens and dials: the settings, the files, and the stack that uses them.

`settings` names the files, `certificates` reads and explains them, `credentials` makes contexts of them, `stack` is the
`NetworkStack` that encrypts and knows its peers. `outside` dials servers that are none of the cluster's.
"""

from trimaran.service_api.tls.stack import TlsStack as TlsStack
from trimaran.service_api.tls.stack import client_network as client_network
from trimaran.service_api.tls.stack import serving_network as serving_network

from .settings import SYSTEM_AUTHORITIES as SYSTEM_AUTHORITIES
from .settings import TlsSettings as TlsSettings

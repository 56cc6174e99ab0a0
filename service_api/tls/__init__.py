"""TLS for everything that listens and dials: the settings, the files, and the stack that uses them.

`settings` names the files, `certificates` reads and explains them, `credentials` makes contexts of them, `stack` is the
`NetworkStack` that encrypts and knows its peers. `outside` dials servers that are none of the cluster's.
"""

from .settings import SYSTEM_AUTHORITIES as SYSTEM_AUTHORITIES
from .settings import TlsSettings as TlsSettings
from .stack import TlsStack as TlsStack
from .stack import client_network as client_network
from .stack import serving_network as serving_network

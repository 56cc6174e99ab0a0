"""Services that are ready to run, `trimaran up NAME`: one folder each, with its messages and the service.

Their clients are in `client.ready_made`, their commands in `cluster.cli.ready_made`.
"""

from .catalogue import READY_MADE as READY_MADE
from .catalogue import ReadyMade as ReadyMade

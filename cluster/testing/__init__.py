"""The test kit: what tests of a service need, in one process and on virtual time.

`harness` runs one service without a cluster, `memory_cluster` a whole cluster; `plugin` is what pytest loads.
"""

from .harness import HarnessSession as HarnessSession
from .harness import ServiceHarness as ServiceHarness

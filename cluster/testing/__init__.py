"""The lab: the test kit for services, in one process and on virtual time; the simulator; the lint.

`harness` runs one service without a cluster (`typed_harness` a typed one, `strategies` make its messages, `machines`
run it beside a model), `memory_cluster` a whole cluster, `simulating` many seeds under faults, `replaying` recorded
traffic. `plugin` is loaded by pytest, and imports the others when a test needs them. `simulation` is the simulator
itself, `check` the lint of services.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .harness import HarnessSession as HarnessSession
    from .harness import ServiceHarness as ServiceHarness
    from .machines import ServiceModel as ServiceModel
    from .machines import service_machine as service_machine
    from .memory_cluster import MemoryCluster as MemoryCluster
    from .replaying import UncomparedFieldWarning as UncomparedFieldWarning
    from .replaying import replay_log as replay_log
    from .simulating import ClientWorkload as ClientWorkload
    from .simulating import simulate as simulate
    from .strategies import strategy_for as strategy_for
    from .typed_harness import TypedHarness as TypedHarness
    from .waiting import StillWaitingError as StillWaitingError
else:
    from ...service_api.lazy_exports import lazy_exports

    __getattr__, __dir__ = lazy_exports(__name__)

"""A user's service and a log, without a cluster: its state at any position, and what other code would have done.

`replay` delivers a log; `member_log` reads it, `container` listens to the service, `outputs` is what it gives out,
`services` finds the user's class, `rendering` shows its state. `what_if` compares two services by their `difference`,
or one with the log (`witness`); `determinism` compares a service with its own snapshots.
"""

from .determinism import SnapshotVerdict as SnapshotVerdict
from .determinism import verify_snapshots as verify_snapshots
from .difference import Change as Change
from .difference import OutputDifference as OutputDifference
from .member_log import MemberLog as MemberLog
from .outputs import CallbackFailure as CallbackFailure
from .outputs import Output as Output
from .outputs import OutputKind as OutputKind
from .rendering import describe_state as describe_state
from .replay import ReplayedService as ReplayedService
from .replay import SnapshotChoice as SnapshotChoice
from .replay import replay_service as replay_service
from .what_if import StateDifference as StateDifference
from .what_if import WhatIf as WhatIf
from .what_if import what_if as what_if

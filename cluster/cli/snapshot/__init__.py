"""`trimaran snapshot`: take a snapshot of a cluster; list, describe, verify and invalidate those on a disk.

`take` asks the leader and waits until every member has the snapshot durably. The other commands work on one member's
directory: `list`, `describe` and `verify` change nothing and may run beside the node, `invalidate` needs a node that is
stopped.

Exit status: 0 success; 1 the snapshot was not taken; 2 wrong usage, or the directory cannot be used; 10 `verify` or
`describe` found damage; 12 the cluster refuses.
"""

from typing import Final

from ....archive.tool.output import new_group
from .describe import describe_snapshots
from .invalidate import invalidate
from .list import list_snapshots
from .take import take
from .verify import verify_snapshot

app: Final = new_group("Take, list, describe, verify and invalidate snapshots.")
app.command()(take)
app.command("list")(list_snapshots)
app.command("describe", epilog="Example: trimaran snapshot describe data/node-0")(describe_snapshots)
app.command("verify")(verify_snapshot)
app.command()(invalidate)

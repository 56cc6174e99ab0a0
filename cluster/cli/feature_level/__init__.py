"""`trimaran feature-level`: which behaviour the services have, by number, and what each member can.

`show` asks one member, the leader if it can be reached; `raise` asks the leader for one entry of the log. Exit status
as of the other operations (`shared.operation`): 12 where a member is down or can less.
"""

from typing import Final

from ....archive.tool.output import new_group
from .raise_level import raise_level
from .show import show_level

app: Final = new_group("Show the feature level of a cluster, and raise it.")
app.command("show", epilog="Example: trimaran feature-level show --config trimaran-data/cluster.toml")(show_level)
app.command("raise", epilog="Example: trimaran feature-level raise --to 2 --config trimaran-data/cluster.toml")(
    raise_level
)

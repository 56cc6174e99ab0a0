"""`trimaran backup`: copy a cluster to another directory and follow it; check the copy; make a new cluster of it.

Exit status: 0 success; 1 it failed, or a store refused; 2 wrong usage; 3 the agent does not run (`status`), or a store
does not answer; 10 the backup is damaged, or is far behind (`status`, `verify`).
"""

from typing import Final

from ....archive.tool.output import new_group
from .prune import prune_backups
from .restore import restore
from .run import run
from .ship import ship_to_store
from .status import show_status
from .verify import verify_all

app: Final = new_group("Back a cluster up, check the backup, and restore a cluster from it.")
app.command("run", epilog="Example: trimaran backup run --directory backup --config trimaran-data/cluster.toml")(run)
app.command("status", epilog="Example: trimaran backup status backup")(show_status)
app.command("ship", epilog="Example: trimaran backup ship backup s3://bucket/shop")(ship_to_store)
app.command("prune", epilog="Example: trimaran backup prune s3://bucket/shop --keep 1 --keep-days 30")(prune_backups)
app.command("verify", epilog="Example: trimaran backup verify backup --service counter:Counter")(verify_all)
app.command(
    "restore", epilog="Example: trimaran backup restore --from backup --members 0=10.0.0.1:9000 --directory restored"
)(restore)

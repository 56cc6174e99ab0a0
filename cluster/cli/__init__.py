"""The command `trimaran`: `app` chooses the command, `node`, `show_config` and `demo` are the commands.

Commands are imported when they are asked for, so that `trimaran --help` answers at once.
"""

from .app import main as main

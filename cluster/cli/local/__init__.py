"""Members as processes on this machine, for `trimaran demo` and `trimaran up`: started, watched, never left behind.

`nodes` starts and ends them, `child` is what a process of them runs: it ends with whoever started it.
"""

from .nodes import LocalNodes as LocalNodes
from .nodes import LocalNodesError as LocalNodesError
from .nodes import NodeProcess as NodeProcess
from .nodes import free_base_ports as free_base_ports

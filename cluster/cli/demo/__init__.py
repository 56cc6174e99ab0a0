"""`trimaran demo`: three members, real requests, the leader killed halfway, every reply checked.

`demo` is the command; `request_file` reads the input, `request_stream` sends and receives, `recordings` compares what
the members recorded, `demo_report` checks and prints the outcome. The processes are those of `shared.local_nodes`.
"""

from .demo import demo as demo

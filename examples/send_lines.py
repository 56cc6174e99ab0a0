"""Sends lines to a service and prints its answers: for the counter of the README, `seq 10 | python send_lines.py`.

    python examples/send_lines.py 127.0.0.1:9000,127.0.0.1:9100,127.0.0.1:9200 < lines

A script without asyncio. It prints an answer for each line, tells on the standard error what happened to its
connections, and ends with 1 if the answers did not come.
"""

from __future__ import annotations

import sys

from trimaran.client import Connected, SyncClusterClient
from trimaran.service_api import ClusterError

ANSWER_TIMEOUT_S = 10.0


def main(endpoints: str = "127.0.0.1:9000,127.0.0.1:9100,127.0.0.1:9200") -> int:
    """Send what the standard input has; give the exit status."""
    try:
        with SyncClusterClient.connect(endpoints.split(","), client_info="send_lines") as cluster:
            for line in sys.stdin:
                cluster.offer(line.rstrip("\n").encode(), timeout_s=ANSWER_TIMEOUT_S)
                print(cluster.receive(timeout_s=ANSWER_TIMEOUT_S).payload.decode())
            for event in cluster.connection_events(timeout_s=0):
                if not isinstance(event, Connected):
                    print(event, file=sys.stderr)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))

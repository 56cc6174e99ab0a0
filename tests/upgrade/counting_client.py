"""A client that sends one request after another until its input ends, and prints the replies: of either version.

It is run as a file, by the Python of one version or the other, and uses what a user's program uses.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys

from trimaran.client import ClientConfig, ClusterClient

ANSWER = struct.Struct("<qq")


async def run(endpoints: list[str]) -> None:
    """Send requests until standard input is closed; then print where in the list each of them came."""
    loop, places = asyncio.get_running_loop(), list[int]()
    ended = loop.run_in_executor(None, sys.stdin.read)
    config = ClientConfig(endpoints=tuple(endpoints), connect_timeout_s=60.0, new_leader_timeout_s=60.0)
    async with ClusterClient.connect(config=config) as client:
        while not ended.done():
            reply = await client.request(b"request %d" % len(places))
            places.append(ANSWER.unpack_from(reply)[1])
    print(json.dumps(places))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))

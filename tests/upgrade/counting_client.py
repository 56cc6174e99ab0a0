"""A client of either version that sends requests and queries until its input ends, then prints where they came.

It is run as a file, by the Python of one version or the other, and uses what a user's program uses.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys

from trimaran.client import ClientConfig, ClusterClient

ANSWER = struct.Struct("<qq")
QUERY_INTERVAL = 10


async def run(endpoints: list[str]) -> None:
    """Send requests until standard input is closed; then print where in the list each of them came."""
    loop, places = asyncio.get_running_loop(), list[int]()
    ended = loop.run_in_executor(None, sys.stdin.read)
    config = ClientConfig(endpoints=tuple(endpoints), connect_timeout_s=300.0, new_leader_timeout_s=300.0)
    async with ClusterClient.connect(config=config) as client:
        while not ended.done():
            reply = await client.request(b"request %d" % len(places))
            places.append(ANSWER.unpack_from(reply)[1])
            if len(places) % QUERY_INTERVAL == 0:
                answer = await client.query(b"")
                place = ANSWER.unpack_from(answer.payload)[1]
                assert place >= places[-1], f"a query was told an older state: {place} expected at least {places[-1]}"
    print(json.dumps(places))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1:]))

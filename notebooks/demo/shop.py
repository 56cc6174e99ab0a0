"""A shop whose stock is in a cluster that is backed up, and what happens to it on one morning."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from random import Random
from typing import Final

from trimaran.client.ready_made import SyncCountersClient
from trimaran.cluster.operating.backup.status import read_status
from trimaran.cluster.settings.variables import clean_environment
from trimaran.service_api import ClusterError

from .cluster import SETTINGS, DemoCluster
from .morning import data_directory
from .notebook_loop import NotebookLoop

STOCK: Final = {"apples": 420, "bread": 380, "cheese": 300, "eggs": 450, "milk": 400, "tea": 250}
"""What is in the shop when it opens."""
PRICES: Final = {"apples": 35, "bread": 290, "cheese": 640, "eggs": 55, "milk": 119, "tea": 480}
"""In cents."""
TIMEOUT_S: Final = 60.0
SHOP_SETTINGS: Final = {name: value for name, value in SETTINGS.items() if name != "authenticator"} | {
    "service": "trimaran.service_api.ready_made.counters.service:CounterService"
}


class BackedUpShop:
    """Three members with a counter for each article, and the agent of a backup: processes on this machine.

        shop = BackedUpShop()
        shop.sell(600)
        ...
        shop.stop()

    Methods block. What was sold is noted outside of the cluster, as a till would. The processes end with the one that
    made this.

    Raises:
        ClusterError: a member could not be started.
        TimeoutError: there was no leader in time.
    """

    def __init__(self) -> None:
        self.directory = data_directory() / "shop"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.backup = self.directory / "backup"
        self._random = Random(1995)
        self._thread = NotebookLoop("trimaran-shop")
        self._clusters = {"shop": DemoCluster(self.directory, SHOP_SETTINGS)}
        self._agent: subprocess.Popen[bytes] | None = None
        try:
            self._thread.run(self._clusters["shop"].start())
            self._start_agent()
            self.import_stock(STOCK)
        except BaseException:
            self._end()
            raise

    def __repr__(self) -> str:
        return f"<BackedUpShop {len(STOCK)} articles, {sum(STOCK.values()):,} pieces>"

    def sell(self, count: int) -> list[str]:
        """Sell so many pieces, of articles that are drawn; gives which, in order."""
        sold = self._random.choices([*STOCK], k=count)
        self.sell_again(sold, where="shop")
        return sold

    def sell_again(self, sold: list[str], *, where: str = "restored") -> None:
        """Take pieces out of the stock, one request each."""
        with self._client(where) as counters:
            for article in sold:
                counters.add(article, -1)

    def import_stock(self, counts: dict[str, int]) -> None:
        """Write the stock as the nightly import does."""
        with self._client("shop") as counters:
            for article, count in counts.items():
                counters.set(article, count)

    def stock(self, where: str = "shop") -> dict[str, int]:
        """The stock by article, as the cluster says, or the `restored` one."""
        with self._client(where) as counters:
            return {article: counters.get(article) for article in STOCK}

    def wait_for_backup(self) -> int:
        """Wait until the backup has all that the leader has committed; gives the position.

        Raises:
            TimeoutError: that took too long.
        """
        wanted = self._thread.run(self._clusters["shop"].commit_position())
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                status = read_status(self.backup / "cluster")
            except ClusterError:
                status = None
            if status is not None and status.recorded_position >= wanted:
                return status.recorded_position
            time.sleep(0.05)
        raise TimeoutError(f"the backup has not come to {wanted} in {TIMEOUT_S:g} s")

    def restore(self, position: int) -> str:
        """Make a new cluster of the backup as it was at a position, and start it; gives what the command printed.

        Raises:
            ClusterError: it cannot be restored.
        """
        place = self.directory / "again"
        cluster = DemoCluster(place, SHOP_SETTINGS)
        self._clusters["restored"] = cluster
        wanted = ["--from", str(self.backup), "--members", cluster.members, "--directory", str(place)]
        command = ["backup", "restore", *wanted, "--position", str(position)]
        done = subprocess.run(
            [sys.executable, "-m", "trimaran", *command],
            capture_output=True,
            text=True,
            check=False,
            env=clean_environment(),
        )
        if done.returncode:
            raise ClusterError(f"not restored: {done.stderr.strip()}")
        self._thread.run(cluster.start())
        return done.stdout

    def stop(self) -> None:
        """Stop the members of both clusters, and the agent. More calls do nothing."""
        if not self._thread.is_running:
            return
        try:
            for cluster in self._clusters.values():
                self._thread.run(cluster.stop())
        finally:
            self._end()

    def _client(self, where: str) -> SyncCountersClient:
        return SyncCountersClient.connect(self._clusters[where].endpoints)

    def _start_agent(self) -> None:
        options = ("--members", self._clusters["shop"].members, "--directory", str(self.backup))
        child = (sys.executable, "-m", "trimaran.cluster.cli.shared.local_child", str(os.getpid()))
        with (self.directory / "backup.log").open("wb") as log:
            self._agent = subprocess.Popen(
                [*child, "backup", "run", *options, "--query-interval", "1"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment(),
                start_new_session=True,
            )

    def _end(self) -> None:
        if self._agent is not None:
            self._agent.terminate()
            self._agent.wait()
        for cluster in self._clusters.values():
            self._thread.run(cluster.close())
        self._thread.end()


def left_of(sold: list[str]) -> dict[str, int]:
    """What is to be left of each article, by what the till has noted."""
    counts = Counter(sold)
    return {article: count - counts[article] for article, count in STOCK.items()}

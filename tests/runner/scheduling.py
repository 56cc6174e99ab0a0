"""Which worker runs which tests: a file is one unit, and so is a folder in `ONE_WORKER`.

A file's tests share fixtures, so they run in one worker. xdist's own scheduler for that has three faults where a worker
dies: the test that killed it runs again in the next worker, and kills that, too; a worker that is still collecting is
given tests, which ends the whole run by a KeyError; and work comes back at the end of the queue. Here the test is given
up, and the rest of its file goes to the next worker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ONE_WORKER: Final = ("spark", "notebooks")
"""Folders whose files share what is dear to start: a JVM, a recorded cluster."""


class FilesOfOneWorker(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out files; a dead worker costs the test that it ran."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Forget a worker, and queue what it has not run yet; return the test that it died of."""
        units = self.assigned_work.pop(node)
        if self.collection is None:
            self.registered_collections.pop(node, None)  # it does not stand for the one that replaces it
        waiting = [nodeid for unit in units.values() for nodeid, is_done in unit.items() if not is_done]
        if not waiting:
            return None
        for scope, unit in reversed(units.items()):
            left = {nodeid: False for nodeid, is_done in unit.items() if not is_done and nodeid != waiting[0]}
            if left:
                self.workqueue[scope] = left
                self.workqueue.move_to_end(scope, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return str(waiting[0])

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        folder = Path(file).parts[1:2]
        return folder[0] if folder and folder[0] in ONE_WORKER else file

"""The job of one seed, in a form that can be sent to another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...settings.service_loading import load_service_class
from ...simulation.campaign import check_determinism
from ...simulation.clients.queries import QUERY_KIND
from ...simulation.clients.service_workload import (
    ServiceWorkload,
    draw_query_of,
    draw_request_of,
    takes_requests,
)
from ...simulation.run import Options, RunOutcome, simulate


@dataclass(slots=True, frozen=True)
class SeedJob:
    """Runs seeds of one service; None is the service that comes with the simulator."""

    service: str | None = None
    service_dir: Path = Path()
    is_run_twice: bool = False
    """Whether each seed is run twice and the traces are compared."""

    def __call__(self, seed: int, options: Options) -> RunOutcome:
        """Run one seed to its end."""
        if self.is_run_twice:
            return check_determinism(seed, options, self.run)
        return self.run(seed, options)

    def run(self, seed: int, options: Options, *, write_line: Callable[[str], None] | None = None) -> RunOutcome:
        """Run one seed once."""
        if self.service is None:
            return simulate(seed, options, write_line=write_line)
        service_class = load_service_class(self.service, self.service_dir)
        make_workload = partial(
            ServiceWorkload,
            draw_request=draw_request_of(service_class),
            uses_requests=takes_requests(service_class),
            draw_query=None if QUERY_KIND in options.without else draw_query_of(service_class),
        )
        return simulate(seed, options, make_service=service_class, make_workload=make_workload, write_line=write_line)

    def arguments(self, *, is_run_twice: bool) -> list[str]:
        """Return the command-line flags that mean the same; running it twice only helps against another trace."""
        flags = []
        if self.service is not None:
            flags += ["--service", self.service, "--service-dir", str(self.service_dir)]
        if is_run_twice:
            flags += ["--check-determinism"]
        return flags

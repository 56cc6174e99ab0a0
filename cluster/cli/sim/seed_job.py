"""The job of one seed, in a form that can be sent to another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ....service_api import ClusteredService, ConfigurationError
from ...core.service_messages import SERVICE_LIMIT
from ...settings.service_loading import load_service_classes
from ...testing.simulation.campaign import check_determinism
from ...testing.simulation.clients.service_work import (
    ServiceWork,
    draw_query_of,
    draw_request_of,
    key_of_request,
    takes_requests,
)
from ...testing.simulation.clients.stale_reads import QUERY_KIND
from ...testing.simulation.run import Options, RunOutcome, run_seed


@dataclass(slots=True, frozen=True)
class SeedJob:
    """Runs seeds of one node's services; None is the service that comes with the simulator."""

    service: str | None = None
    """As the setting `service`: up to ten, with commas."""
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
            return run_seed(seed, options, write_line=write_line)
        services = self.load_services(self.service)
        # The first service that takes requests answers them, and the first that takes queries those.
        requested = next((service for service in services if takes_requests(service)), services[0])
        draw_queries = (draw_query_of(service) for service in services)
        make_work = partial(
            ServiceWork,
            draw_request=draw_request_of(requested),
            uses_requests=takes_requests(requested),
            draw_query=None if QUERY_KIND in options.without else next(filter(None, draw_queries), None),
            key_of=key_of_request(requested),
        )
        return run_seed(
            seed,
            options,
            make_service=services[0],
            make_further=services[1:],
            make_work=make_work,
            key_of=key_of_request(requested),
            write_line=write_line,
        )

    def load_services(self, names: str) -> list[type[ClusteredService]]:
        """Import the classes that `names` stands for.

        Raises:
            ConfigurationError: as `load_service_classes`, or there are more than a node takes.
        """
        services = load_service_classes(names.split(","), self.service_dir)
        if len(services) > SERVICE_LIMIT:
            raise ConfigurationError(f"services={len(services)}: expected 1 to {SERVICE_LIMIT}")
        return services

    def arguments(self, *, is_run_twice: bool) -> list[str]:
        """Return the command-line flags that mean the same; running it twice only helps against another trace."""
        flags = []
        if self.service is not None:
            flags += ["--service", self.service, "--service-dir", str(self.service_dir)]
        if is_run_twice:
            flags += ["--check-determinism"]
        return flags

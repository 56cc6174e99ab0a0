"""What members that share a machine ask and tell the kernel, for a test to set and to see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trimaran.cluster.runtime.ground.host import Host
from trimaran.service_api import Clock


@dataclass
class FakeKernel:
    """Counts every call of a member to the kernel about its processors."""

    waited_ns: int = 0
    """How long the thread has waited for a processor."""
    look_count: int = 0
    yield_count: int = 0
    nices: list[int] = field(default_factory=list)

    def host(self, *, clock: Clock | None = None, spare_sync_delay_us: int = 20_000) -> Host:
        """Give the operating system's machine with this kernel."""
        host = Host.of_operating_system()
        return replace(
            host,
            clock=clock or host.clock,
            set_session_nice=self._set_session_nice,
            read_wait=self._read_wait,
            sched_yield=self._yield,
            spare_sync_delay_us=spare_sync_delay_us,
        )

    def _set_session_nice(self, nice: int) -> bool:
        self.nices.append(nice)
        return True

    def _read_wait(self) -> int:
        self.look_count += 1
        return self.waited_ns

    def _yield(self) -> None:
        self.yield_count += 1

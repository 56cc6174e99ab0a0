"""Made-up reports about many sessions, groups, big states and Aeron, small and always the same."""

from __future__ import annotations

from typing import Any

from tests.unit.benchmarks.page import samples

MIB = 2**20
DATED = {**samples.ENVIRONMENT, "date": "2026-01-31"}


def growth_point(
    dimension: str, sessions: int, *, cpu: float, clients: int = 1, member_mib: int = 80
) -> dict[str, Any]:
    """A point whose leader takes half of `cpu` seconds for 100,000 messages, and its client a quarter."""
    return samples.point(
        dimension,
        sessions,
        throughput_msgs_per_s=20_000,
        p50_us=25_000.0,
        p99_us=50_000.0,
        client_processes=clients,
        cpu_seconds_per_100k={
            "member-0": cpu / 8,
            "member-1": cpu / 2,
            "member-2": cpu / 8,
            **{f"client-{index}": cpu / 4 / clients for index in range(clients)},
        },
        resident_bytes={
            **{f"member-{index}": member_mib * MIB for index in range(3)},
            **{f"client-{index}": (40 + sessions // 1_000) * MIB for index in range(clients)},
        },
    )


def sessions() -> dict[str, Any]:
    return {
        "scenario": "scan",
        "points": [
            growth_point("sessions", 1, cpu=1.0),
            growth_point("sessions", 1_000, cpu=2.0, member_mib=84),
            growth_point("shared", 1, cpu=1.0),
            growth_point("shared", 1_000, cpu=1.25, member_mib=82),
            growth_point("shared", 10_000, cpu=2.0, clients=2, member_mib=100),
        ],
        "failures": [{"dimension": "sessions", "value": 10_000, "reason": "not enough open files"}],
        "parameters": {"seconds": 4.0, "payload": 32, "inflight": 1_000, "file_sync_level": 1},
        "environment": DATED,
    }


def openings() -> dict[str, Any]:
    def case(count: int, seconds: float, *, share: bool = False, password: bool = False) -> dict[str, Any]:
        return {
            "sessions": count,
            "share": share,
            "password": password,
            "rounds": 1,
            "load_average_before": 0.75,
            "opening": {"s": seconds, "per_s": 1.0, "leader_us": 400.0, "follower_us": 30.0, "client_us": 600.0},
            "a second at rest": {"leader_us": 2.5, "follower_us": 1.0, "client_us": 3.5},
            "failover": {"p50_ms": 501.0, "p99_ms": 900.0, "max_ms": 2_999.0},
            "rounds_of": {
                "opening s": [seconds - 0.5, seconds, seconds + 1] if count == 1_000 else [seconds],
                **{f"failover {name}": [1.0] for name in ("p50_ms", "p99_ms", "max_ms")},
            },
        }

    return {
        "scenario": "openings",
        "cases": [case(1_000, 1.5), case(10_000, 5.5), case(10_000, 5.5, share=True, password=True)],
        "failures": [{"sessions": 10_000, "share": False, "password": True, "reason": "the time was up"}],
        "parameters": {"rest_s": 5.0, "rounds": 3},
        "environment": DATED,
    }


def fairness() -> dict[str, Any]:
    row = {"p50_us": 60_000.0, "p90_us": 61_000.0, "p99_us": 80_000.0, "p999_us": 81_000.0, "max_us": 90_000.0}
    return {
        "scenario": "fairness",
        "alone": row,
        "beside 64 in flight,": {**row, "greedy_per_s": 5_000, "p99_times_alone": 1.5},
        "beside 4096 in flight,": {**row, "greedy_per_s": 90_000, "p99_times_alone": 3.25},
        "parameters": {"sessions": 1_000, "depths": [64, 4_096], "file_sync_level": 1},
        "environment": DATED,
    }


def groups() -> dict[str, Any]:
    row = {"p50_us": 4_000.0, "p99_us": 8_000.0, "leader_cpu_us": 2.0, "follower_cpu_us": 1.0, "client_cpu_us": 2.0}
    return {
        "scenario": "groups",
        "1 group,": {**row, "messages_per_s": 250_000.0},
        "2 groups,": {**row, "messages_per_s": 275_000.0},
        "runs": {"1": [{**row, "messages_per_s": 240_000}], "2": [{**row, "messages_per_s": 275_000}]},
        "parameters": {"payload": 32, "file_sync_level": 1, "inflight": 1_024, "rounds": 3},
        "environment": samples.ENVIRONMENT,
    }


def snapshots() -> dict[str, Any]:
    def row(stop_ms: float, load_s: float) -> dict[str, Any]:
        return {
            "delivery_stop_max_ms": stop_ms,
            "reply_stop_max_ms": stop_ms + 1,
            "reply_stop_steady_max_ms": 20.0,
            "ingress_stop_max_ms": 30.0,
            "loop_stop_max_ms": 40.0,
            "snapshot_max_ms": 9_500,
            "restart_s": 6.0,
            "load_s": load_s,
        }

    return {
        "scenario": "snapshots",
        "ways": {"message": row(17_000, 13.5), "pieces": row(1_900, 4.0), "copy": row(150, 5.5)},
        "failures": {"copy": "no memory"},
        "parameters": {"orders": 2_000_000, "runs": 3},
        "environment": DATED,
    }


def aeron() -> dict[str, Any]:
    def side(rate: int, p50_us: float | None) -> dict[str, Any]:
        return {"messages_per_s": rate, "p50_us": p50_us}

    return {
        "scenario": "aeron",
        "aeron_version": "1.52.2",
        "git_commit": "abc",
        "date": "2026-02-01",
        "cores": 2,
        "cpu_model": "a processor",
        "load_average": [0.25, 0.5, 0.5],
        "rounds": 5,
        "payload": 32,
        "rows": [
            {"file_sync_level": 1, "inflight": 1, "trimaran": side(2_060, 480.0), "aeron": side(2_000, 490.0)},
            {"file_sync_level": 0, "inflight": 64, "trimaran": side(207_000, None), "aeron": side(349_000, 142.0)},
        ],
    }


def everything() -> dict[str, dict[str, Any]]:
    """A report of each kind, by the name of its file."""
    many = samples.profile()
    for process in many["processes"].values():
        process["stages"][0]["us"] = 3.5
        process["cpu_us"] = 4.3
    return {
        "sessions.json": sessions(),
        "openings.json": openings(),
        "fairness.json": fairness(),
        "profile.json": samples.profile(),
        "profile-1000.json": many,
        "groups.json": groups(),
        "snapshots.json": snapshots(),
        "aeron.json": aeron(),
    }

"""Reports as scenarios write them, small and always the same."""

from __future__ import annotations

from typing import Any

ENVIRONMENT = {
    "git_commit": "abc",
    "python": "CPython 3.11.7",
    "uvloop": "0.22",
    "checksums": "zlib_ng 1.1",
    "cores": 2,
    "cpu_model": "a processor",
    "kernel": "Linux 6",
    "file_system": "ext4",
    "load_average": [0.5, 0.4, 0.3],
}
CPU = {"member-0": 0.1, "member-1": 0.25, "member-2": 0.1, "client-0": 0.2}


def load(**values: object) -> dict[str, Any]:
    return {
        "throughput_msgs_per_s": 200_000,
        "p50_us": 1.0,
        "p90_us": 1.5,
        "p99_us": 2.0,
        "p999_us": 3.0,
        "max_us": 4.0,
        "messages": 1000,
        "leader": "member-1",
        "cpu_seconds_per_100k": CPU,
        "latency_percentiles_us": {"0": 0.5, "50": 1.0, "75": 1.4, "99.9": 3.0, "100": 4.0},
        **values,
    }


def echo(**values: object) -> dict[str, Any]:
    return {"scenario": "echo", **load(), "parameters": {"payload": 32}, "environment": ENVIRONMENT, **values}


def point(dimension: str, value: int, **values: object) -> dict[str, Any]:
    return {
        "dimension": dimension,
        "value": value,
        **load(throughput_msgs_per_s=1000 * value + 1),
        "members": 3,
        "written_bytes_per_message": 128.0,
        "messages_per_sync": 64.0,
        **values,
    }


def scan() -> dict[str, Any]:
    return {
        "scenario": "scan",
        "points": [
            *(point("payload", value) for value in (32, 65_536)),
            *(point("inflight", value) for value in (1, 64, 1024)),
            *(point("members", value) for value in (1, 3)),
            *(point("sessions", value) for value in (1, 1000)),
            *(point("log", value, start_s=1.0 + value, members=1) for value in (0, 64)),
        ],
        "failures": [{"dimension": "sessions", "value": 10_000, "reason": "not enough open files"}],
        "parameters": {"seconds": 2.0},
        "environment": ENVIRONMENT,
    }


def table(value: float = 217_123.4, *, reached: bool = False) -> dict[str, Any]:
    rate = {"what": "a row", "figure": "msgs_per_s", "unit": "msg/s", "value": value, "target": ">= 250,000 msg/s"}
    slow = {"what": "a row", "figure": "p999_us", "unit": "us", "value": 1500.0, "target": "<= 9 us"}
    disk = {"fdatasync_4k_p50_us": 90.0, "fdatasync_4k_p99_us": 200.0, "stream_mb_per_s": 700}
    return {
        "scenario": "table",
        "rows": [{**rate, "reached": reached}, {**slow, "reached": True}],
        "rounds": {"disk": [disk]},
        "reports": {"a row": [echo(throughput_msgs_per_s=value)]},
        "parameters": {"rounds": 3},
        "environment": ENVIRONMENT,
    }


def compare() -> dict[str, Any]:
    def depths(rate: int, ratio: float) -> dict[str, Any]:
        found = {"messages_per_s": rate, "p50_us": 48_000.0, "p99_us": None, "client_cpu_us": 3.456}
        return {"1024": {**found, "rounds": [rate - 1000, None, rate + 2000], "trimaran_is_times_faster": ratio}}

    return {
        "scenario": "compare",
        "peers": {
            "Trimaran, file sync level 1": {
                "version": "trimaran 0.1",
                "durability": "on disk (fdatasync) on a majority",
                "client": "its own",
                "depths": depths(216_300, 1.0),
            },
            "etcd": {
                "version": "3.4",
                "durability": "on disk",
                "client": "h2load",
                "depths": depths(21_000, 10.3),
                "failures": [{"round": 2, "load": "1024 in flight", "reason": "h2load said no"}],
            },
            "broken": {
                "version": "1",
                "durability": "none",
                "client": "none",
                "depths": {},
                "failures": [{"round": number, "load": None, "reason": "no leader"} for number in (1, 2, 3)],
            },
            "absent": {"missing": "why"},
        },
        "not_measurable": {"raftos": "because"},
        "parameters": {"rounds": 5, "payload": 32, "depths": [1024]},
        "environment": ENVIRONMENT,
    }


def profile() -> dict[str, Any]:
    def process(name: str) -> dict[str, Any]:
        return {
            "process": name,
            "user_us": 1.5,
            "system_us": 0.5,
            "cpu_us": 2.0,
            "samples": {"perf": 900, "py_spy": 400},
            "stages": [
                {"stage": "append: stamp and place", "detail": "", "us": 1.2, "error_us": 0.1, "share": 0.6},
                {"stage": "kernel", "detail": "fdatasync", "us": 0.7, "error_us": 0.05, "share": 0.35},
                {"stage": "not attributed", "detail": "", "us": 0.095, "error_us": 0.01, "share": 0.0475},
                {"stage": "event loop (uvloop)", "detail": "", "us": 0.005, "error_us": 0.001, "share": 0.0025},
            ],
            "functions": [{"function": "core/log_publisher.py:_stamp", "stage": "append: stamp and place", "us": 1.1}],
        }

    calls = {"all": 30.5, "write": 6.5, "writev": 0.0}
    return {
        "scenario": "profile",
        "throughput_msgs_per_s": 200_000,
        "with_profiler_msgs_per_s": {"perf": 190_000, "py_spy": 160_000},
        "processes": {"leader": process("member-1"), "follower": process("member-0"), "client": process("client-0")},
        "bound": {
            "cores": 2,
            "cpu_us_per_message": 6.5,
            "msgs_per_s_at_100_percent": 307_692,
            "share_of_bound": 0.65,
        },
        "system_calls_per_1000_messages": {"leader": calls, "follower": {}, "client": {}, "all processes": calls},
        "sampling_hz": {"perf": 997, "py_spy": 250},
        "environment": ENVIRONMENT,
    }


def replay() -> dict[str, Any]:
    return {"scenario": "replay", "messages_per_s": 900_000, "runs": [{"cpu_s": 1.0}], "environment": ENVIRONMENT}


def encryption() -> dict[str, Any]:
    row = {
        "what": "echo, 1,024 in flight",
        "rates": {"plain text": [100.0, 200.0, 300.0], "TLS": [150.0]},
        "share": 0.75,
        "p50_us": {"plain text": 1_000.0, "TLS": 1_200.0},
        "cpu_us": {"plain text": 5.0, "TLS": 6.5},
        "target": "at least 70% of the rate",
        "reached": True,
    }
    return {
        "scenario": "encryption",
        "rows": [row],
        "parameters": {"rounds": 3, "file_sync_level": 1},
        "environment": ENVIRONMENT,
    }


def flood() -> dict[str, Any]:
    runs = [
        {
            "most_open_count": 10_000,
            "rss_before_mb": 80.0,
            "rss_peak_mb": 120.0 + during,
            "honest_alone_p99_ms": 2.0,
            "honest_during_p99_ms": during,
            "status_unanswered": 0,
            "status_answered": 30,
        }
        for during in (3.0, 5.0, 4.0)
    ]
    return {
        "scenario": "flood",
        "half-handshake,": runs[2],
        "runs": {"half-handshake": runs},
        "parameters": {"rounds": 3, "members": 3, "connections": 10_000, "tls": True},
        "environment": ENVIRONMENT,
    }


def everything() -> dict[str, dict[str, Any]]:
    """A report of each kind, by the name of its file."""
    return {
        "table.json": table(),
        "echo.json": echo(),
        "scan.json": scan(),
        "compare.json": compare(),
        "profile.json": profile(),
        "encryption.json": encryption(),
        "flood.json": flood(),
        "replay.json": replay(),
    }


def tail_run(p999_us: float, **values: object) -> dict[str, Any]:
    """One open loop of `tails`, whose slow moments were held up by two things."""
    spans = {"count": 3, "p99_ms": 2.097, "longest_ms": 8.389}
    figures = {"p50_us": 1_000.0, "p99_us": 4_000.0, "p999_us": p999_us, "max_us": 2 * p999_us}
    member = {"loop": {"egress": spans}, "stages": {"quorum": spans}, "syncs": {"fdatasync": spans}}
    return {
        **figures,
        "throughput_msgs_per_s": 100_000,
        "duration_s": 30.0,
        "leader": "member-1",
        "send_lag": {**figures, "p999_us": 700.0, "max_us": 900.0},
        "since_sent": figures,
        "collections": {"gc2": {"count": 1, "longest_ms": 1.5}},
        "latency_percentiles_us": {"0": 500.0, "50": 1_000.0, "99.9": p999_us, "100": 2 * p999_us},
        "load_average": 0.5,
        "stolen_percent": 0.5,
        "others_percent": 3.0,
        "waited_percent": {"member-0": 10.0, "member-1": 20.0, "member-2": 11.0, "client-0": 12.0},
        "seen": {f"member-{number}": member for number in range(3)},
        "slow": {
            "count": 3,
            "total_ms": 60.0,
            "causes": {
                "other processes": {"count": 1, "total_ms": 20.0},
                "waits for a processor": {"count": 2, "total_ms": 40.0},
            },
            "longest": [],
        },
        **values,
    }


def tails() -> dict[str, Any]:
    calm = {"p50_us": 900.0, "p99_us": 2_000.0, "p999_us": 3_000.0, "max_us": 6_000.0}
    during = {"p50_us": 1_100.0, "p99_us": 9_000.0, "p999_us": 30_000.0, "max_us": 60_000.0}
    row = {"count": 1, "calm": calm, "during": during, "slow_until_ms": 250.0, "send_lag_max_us": 800.0}
    median = {"p50_us": 1_000.0, "p99_us": 4_000.0, "p999_us": 12_000.0, "max_us": 24_000.0}
    goal = {"figure": "p99_us", "target": "<= 5,000 us", "reached": True}
    return {
        "scenario": "tails",
        "peak_per_s": 200_000,
        "rate_per_s": 100_000,
        "open_loop": {
            "runs": [tail_run(12_000.0), tail_run(36_000.0), tail_run(7_000.0)],
            "median": median,
            "least": {**median, "p99_us": 3_000.0, "p999_us": 7_000.0},
            "most": {**median, "p99_us": 6_000.0, "p999_us": 36_000.0},
            "goals": [goal, {"figure": "p999_us", "target": "<= 10,000 us", "reached": False}],
        },
        "disturbances": [
            {"what": "a snapshot of 10 MiB", **row, "delivery_stop_ms": 120, "taken_ms": 130},
            {"what": "a segment of 8 MiB rolls", **row, "count": 7},
            {"what": "a snapshot of 100 MiB by a copy", **row, "delivery_stop_ms": 20, "taken_ms": 900},
        ],
        "callbacks": [
            {"what": "a callback of 10 ms", **row, "callback_ms": 10.0, "interval_s": 1.0, "elections": 0},
            {"what": "a callback of 5000 ms", "callback_ms": 5000.0, "interval_s": 20.0, "elections": 1},
        ],
        "heartbeat_timeout_ms": 2000,
        "took_s": 600,
        "stolen_percent": 0.4,
        "parameters": {"members": 3, "payload": 32, "file_sync_level": 1, "seconds": 30.0, "calm_s": 4.0},
        "environment": ENVIRONMENT,
    }

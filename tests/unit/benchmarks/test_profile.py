"""The profile: samples belong to the stages that the table says, and what was sampled adds up to what was used."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.places import ROOT
from trimaran.benchmarks.profiling.sampling import parse_perf_script, parse_perf_stat, parse_stacks
from trimaran.benchmarks.profiling.shares import divide
from trimaran.benchmarks.profiling.stages import RULES, StackFrame, Stage, native_part_of, python_stage_of

PERF_SCRIPT = """
  454
    ffffffff817bcd1a ext4_block_write_begin ([kernel.kallsyms])
    ffffffff816b9d23 __x64_sys_pwrite64 ([kernel.kallsyms])
    ffffffff81000130 entry_SYSCALL_64_after_hwframe ([kernel.kallsyms])
               f64c7 __libc_pwrite (/usr/lib/libc.so.6)

  454
              183300 PyList_New (/usr/lib/libpython3.11.so.1.0)
        7f7b0dff8c80 [unknown] ([unknown])

  487      3300 uv__io_poll (/site-packages/uvloop/loop.so)
"""

STACKS = """\
run (/l/asyncio/runners.py);BoundedLogAdapter._deliver (/x/cluster/service/bounded_log_adapter.py) 7
run (/l/asyncio/runners.py) 2
run (/l/asyncio/runners.py);LogPublisher._stamp (/x/cluster/core/log/log_publisher.py);crc (/l/zlib_wrapper.py) 3
"""


def frames(*texts: str) -> list[StackFrame]:
    return [StackFrame.parse(text) for text in texts]


def test_every_row_of_the_table_names_files_and_functions_that_are_there() -> None:
    """Or the table rots, and what it no longer knows is shown as not attributed."""
    for rule in RULES:
        path = ROOT / rule.path
        assert path.exists(), rule
        if rule.functions:
            tree = ast.parse(path.read_text())
            defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert rule.functions <= defined, (rule, rule.functions - defined)


@pytest.mark.parametrize(
    ("innermost", "stage"),
    [
        ("EgressPipe.write (/x/cluster/runtime/links/egress_pipe.py)", Stage.EGRESS),
        ("IngressBytes.buffer_updated (/x/cluster/runtime/links/ingress_bytes.py)", Stage.RECEIVE),
        ("LogPublisher.append_ingress (/x/cluster/core/log/log_publisher.py)", Stage.CHECK),
        ("Recording._submit_batch.<locals>.job (/x/archive/store/recording.py)", Stage.SYNC),
        ("LeaderTerm._advance_commit (/x/cluster/core/roles/leader.py)", Stage.CONSENSUS),
        ("EgressAdapter.receive (/x/client/protocol/egress_adapter.py)", Stage.CLIENT_RECEIVE),
        ("EchoLoad.on_message (/x/benchmarks/load/echo.py)", Stage.LOAD),
        ("strange (/x/elsewhere.py)", Stage.UNATTRIBUTED),
        ("generate (/l/prometheus_client/exposition.py)", Stage.UNATTRIBUTED),
        ("Runner.run (/l/asyncio/runners.py)", None),
    ],
)
def test_a_stack_is_of_the_stage_of_its_innermost_known_function(innermost: str, stage: Stage | None) -> None:
    assert python_stage_of(frames("run (/l/asyncio/runners.py)", innermost))[0] is stage


def test_a_function_of_a_library_is_of_the_stage_that_called_it() -> None:
    stack = frames("EchoService.on_session_message (/x/benchmarks/services/echo.py)", "lower (/l/json/decoder.py)")

    assert python_stage_of(stack) == (Stage.SERVICE, "benchmarks/services/echo.py:on_session_message")


@pytest.mark.parametrize(
    ("chain", "part"),
    [
        (("vfs_write ([kernel.kallsyms])", "ksys_write ([kernel.kallsyms])"), (Stage.KERNEL, "write")),
        (
            (
                "do_syscall_64 ([kernel.kallsyms])",
                "entry_SYSCALL_64_after_hwframe ([kernel.kallsyms])",
                "__getpid (/libc)",
            ),
            (Stage.KERNEL, "getpid"),
        ),
        (
            ("copy ([kernel.kallsyms])", "entry_SYSCALL_64 ([kernel.kallsyms])", "__GI___libc_read (/libc)"),
            (Stage.KERNEL, "read"),
        ),
        (
            ("do_anonymous_page ([kernel.kallsyms])", "asm_exc_page_fault ([kernel.kallsyms])", "memset (/libc)"),
            (Stage.KERNEL, "page faults"),
        ),
        (("schedule ([kernel.kallsyms])",), (Stage.KERNEL, "other")),
        (("uv__read (/site-packages/uvloop/loop.so)",), (Stage.LOOP, "")),
        (("gc_collect_main (/libpython3.11.so)",), (Stage.GC, "")),
        (("_PyEval_EvalFrameDefault (/libpython3.11.so)",), (None, "")),
        ((), (Stage.UNATTRIBUTED, "")),
    ],
)
def test_a_sample_on_a_processor_is_the_kernels_the_loops_the_collectors_or_pythons(
    chain: tuple[str, ...], part: tuple[Stage | None, str]
) -> None:
    assert native_part_of(frames(*chain)) == part


def test_what_the_profilers_print_is_read() -> None:
    assert [(pid, native_part_of(chain)) for pid, chain in parse_perf_script(PERF_SCRIPT)] == [
        (454, (Stage.KERNEL, "pwrite64")),
        (454, (None, "")),
        (487, (Stage.LOOP, "")),
    ]
    assert parse_perf_stat(
        "# started\n\n2689,,raw_syscalls:sys_enter,1,100.00,,\n383,,syscalls:sys_enter_write,1,100.00,,\n"
        "<not supported>,,syscalls:sys_enter_futex,0,100.00,,\n"
    ) == {"all": 2689, "write": 383}
    found = Counter[tuple[Stage | None, str]]()
    for stack, count in parse_stacks(STACKS).items():
        found[python_stage_of(stack)] += count
    assert found == {
        (Stage.DELIVER, "cluster/service/bounded_log_adapter.py:_deliver"): 7,
        (Stage.APPEND, "cluster/core/log/log_publisher.py:_stamp"): 3,
        (None, "runners.py:run"): 2,
    }


def test_stages_add_up_to_the_time_that_was_used() -> None:
    native = Counter({(Stage.KERNEL, "write"): 300, (Stage.KERNEL, "rare"): 5, (Stage.LOOP, ""): 95, (None, ""): 600})
    python = Counter({(Stage.DELIVER, "a.py:f"): 60, (Stage.APPEND, "b.py:g"): 40, (None, "runners.py:run"): 500})

    found = divide(2.0, native, python)

    us = {(row["stage"], row["detail"]): row["us"] for row in found["stages"]}
    assert sum(us.values()) == pytest.approx(2.0)
    assert us["kernel", "write"] == pytest.approx(0.6)
    assert us["kernel", "other"] == pytest.approx(0.01)
    assert us["deliver to the service", ""] == pytest.approx(2.0 * 0.6 * 0.6)
    assert found["samples"] == {"perf": 1000, "py_spy": 100}
    assert found["functions"][0] == {"function": "a.py:f", "stage": "deliver to the service", "us": 0.72}
    # 1.96 standard deviations of 300 out of 1,000: 2.8 % of 2 us.
    (write,) = (row for row in found["stages"] if row["detail"] == "write")
    assert write["error_us"] == pytest.approx(0.0568, abs=0.0001)


def test_without_samples_all_is_not_attributed() -> None:
    (row,) = divide(2.0, Counter(), Counter())["stages"]
    assert (row["stage"], row["us"]) == ("not attributed", 2.0)

    (row,) = divide(2.0, Counter({(None, ""): 10}), Counter())["stages"]
    assert (row["stage"], row["us"]) == ("not attributed", 2.0)

"""Which part of the work a sample belongs to: one table, from functions to named stages.

There are two kinds of samples. Those of `perf` are taken on a processor, so that their shares are shares of processor
time; they say which system call, library or C function ran, and not which Python function. Those of `py-spy` say which
Python functions were on the stack of the thread that held the interpreter's lock. So the first divide all of the time
into the kernel's (by system call), the event loop's, the garbage collector's and Python's; the second divide Python's
by stage. A Python sample belongs to the stage of its innermost function that the table knows.

What the table does not know is not attributed, and is shown as such.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    """A part of the work, in the order of a message's way."""

    LOAD = "the benchmark's own load"
    CLIENT_SEND = "client: lay out and send"
    RECEIVE = "receive and parse"
    CHECK = "ingress: check sessions"
    APPEND = "append: stamp and place"
    SEND = "send to followers"
    RECORD = "record: plan and write"
    SYNC = "sync"
    CONSENSUS = "consensus: positions, commit, timers"
    DELIVER = "deliver to the service"
    SERVICE = "the service itself"
    EGRESS = "egress: pack and send"
    CLIENT_RECEIVE = "client: receive and hand over"
    LOOP = "event loop (uvloop)"
    GC = "garbage collection"
    KERNEL = "kernel"
    UNATTRIBUTED = "not attributed"


@dataclass(slots=True, frozen=True)
class Rule:
    """A row of the table: functions of the file that ends so, or all of them."""

    path: str
    """How the file ends, or, with a slash behind it, a directory."""
    stage: Stage
    functions: frozenset[str] = frozenset()
    """Empty: whatever no row above this one names."""

    def holds_for(self, frame: StackFrame) -> bool:
        """Whether a frame is of this row."""
        path = f"/{self.path}"  # so that prometheus_client is not our client
        is_there = path in frame.file if path.endswith("/") else frame.file.endswith(path)
        return is_there and (not self.functions or frame.function in self.functions)


def _rule(path: str, stage: Stage, *functions: str) -> Rule:
    return Rule(path, stage, frozenset(functions))


RULES: Final = (
    # The members' way of a message.
    _rule("cluster/runtime/links/egress_pipe.py", Stage.EGRESS),
    _rule("cluster/runtime/links/ingress_bytes.py", Stage.RECEIVE),
    _rule("cluster/runtime/links/ingress_messages.py", Stage.RECEIVE),
    _rule("cluster/runtime/links/connection_life.py", Stage.RECEIVE),
    _rule("cluster/runtime/links/gathered_ingress.py", Stage.RECEIVE, "add"),
    _rule("cluster/runtime/links/gathered_ingress.py", Stage.CHECK),
    _rule("cluster/runtime/links/egress_tracker.py", Stage.EGRESS),
    _rule("cluster/runtime/links/ingress.py", Stage.RECEIVE),
    _rule("service_api/wire/stream.py", Stage.RECEIVE),
    _rule("cluster/core/log/log_publisher.py", Stage.CHECK, "append_ingress", "append_uniform", "append_each"),
    _rule("cluster/core/log/log_publisher.py", Stage.APPEND),
    _rule("cluster/core/log/log_buffer.py", Stage.APPEND),
    _rule("cluster/core/log/log_receiver.py", Stage.RECEIVE),
    _rule("cluster/runtime/links/log_links.py", Stage.SEND, "send"),
    _rule("cluster/runtime/links/log_links.py", Stage.RECEIVE),
    _rule("cluster/runtime/turns/log_control.py", Stage.RECORD, "flush"),
    _rule("archive/store/recording.py", Stage.SYNC, "_sync_inline", "_submit_batch", "job", "done"),
    _rule("archive/store/worker.py", Stage.SYNC),
    _rule("archive/", Stage.RECORD),
    _rule("cluster/runtime/watching/sync_timer.py", Stage.SYNC),
    _rule("cluster/service/bounded_log_adapter.py", Stage.DELIVER),
    _rule("cluster/service/agent.py", Stage.DELIVER),
    _rule("cluster/service/client_session.py", Stage.EGRESS),
    _rule("cluster/service/replies.py", Stage.EGRESS),
    _rule("cluster/runtime/turns/agent.py", Stage.DELIVER, "_deliver", "_deliver_soon"),
    _rule("cluster/runtime/", Stage.CONSENSUS),
    _rule("cluster/core/", Stage.CONSENSUS),
    _rule("cluster/messages/", Stage.CONSENSUS),
    _rule("benchmarks/services/echo.py", Stage.SERVICE),
    # The client's.
    _rule("benchmarks/load/echo.py", Stage.LOAD),
    _rule("benchmarks/load/sessions.py", Stage.LOAD),
    _rule("benchmarks/load/client_process.py", Stage.LOAD),
    _rule("client/protocol/ingress_publisher.py", Stage.CLIENT_SEND),
    _rule("client/cluster_client.py", Stage.CLIENT_SEND),
    _rule("client/conductor.py", Stage.CLIENT_SEND, "flush", "schedule_flush"),
    _rule("client/connection.py", Stage.CLIENT_SEND, "write", "unsent_bytes"),
    _rule("client/protocol/protocol.py", Stage.CLIENT_SEND, "offer", "data_to_send"),
    _rule("client/protocol/member_link.py", Stage.CLIENT_SEND, "outgoing"),
    _rule("client/", Stage.CLIENT_RECEIVE),
)
"""Looked through from the top for the first row that holds."""

_LOOP_FILES: Final = ("/asyncio/", "/uvloop/")
_LOOP_LIBRARIES: Final = ("/uvloop/", "_asyncio")
_COLLECTING: Final = ("gc_", "visit_", "subtract_refs", "move_unreachable", "update_refs", "deduce_unreachable")
_KERNEL_LIBRARIES: Final = ("[kernel", "[guest.kernel")
_SYSTEM_CALL: Final = re.compile(r"(?:__x64_sys_|__arm64_sys_|__se_sys_|__do_sys_|ksys_)(\w+)")
_SYSTEM_CALL_ENTRY: Final = ("entry_SYSCALL", "el0_svc", "el0t_64_sync")
_WRAPPER: Final = re.compile(r"_*(?:GI_+)?(?:libc_)?([a-z]\w*)")
_INTERRUPTIONS: Final = {"page_fault": "page faults", "interrupt": "interrupts", "sysvec": "interrupts"}


@dataclass(slots=True, frozen=True)
class StackFrame:
    """One frame of a stack: a function, and the file or library that it is in."""

    function: str
    file: str

    @classmethod
    def parse(cls, text: str) -> StackFrame:
        """Read "Class.name (file)", of which the class is left out."""
        function, _, file = text.strip().partition(" (")
        return cls(function.rpartition(".")[2], file.removesuffix(")"))


def python_stage_of(stack: Sequence[StackFrame]) -> tuple[Stage | None, str]:
    """The stage of a stack of Python functions, outermost first, and the function that it is by, as "file:name".

    The stage is None where the stack is in nothing but the event loop.
    """
    for frame in reversed(stack):
        for rule in RULES:
            if rule.holds_for(frame):
                begin = frame.file.rfind(f"/{rule.path.partition('/')[0]}/") + 1
                return rule.stage, f"{frame.file[begin:]}:{frame.function}"
    if not stack:
        return Stage.UNATTRIBUTED, ""
    leaf = stack[-1]
    is_loop = any(part in leaf.file for part in _LOOP_FILES)
    return (None if is_loop else Stage.UNATTRIBUTED), f"{leaf.file.rpartition('/')[2]}:{leaf.function}"


def native_part_of(chain: Sequence[StackFrame]) -> tuple[Stage | None, str]:
    """What a sample on a processor was in, innermost frame first: a stage, or None for Python's part, and a detail.

    The detail of the kernel is its system call, or "page faults", "interrupts", "other".
    """
    if not chain:
        return Stage.UNATTRIBUTED, ""
    leaf = chain[0]
    if leaf.file.startswith(_KERNEL_LIBRARIES):
        return Stage.KERNEL, _kernel_work(chain)
    if any(part in leaf.file for part in _LOOP_LIBRARIES):
        return Stage.LOOP, ""
    if leaf.function.startswith(_COLLECTING):
        return Stage.GC, ""
    return None, ""


def _kernel_work(chain: Sequence[StackFrame]) -> str:
    for position, frame in enumerate(chain):
        if found := _SYSTEM_CALL.match(frame.function):
            return found[1]
        if frame.function.startswith(_SYSTEM_CALL_ENTRY) and position + 1 < len(chain):
            # The kernel's part has no name here; that of the C library's function around it is as good.
            wrapper = _WRAPPER.fullmatch(chain[position + 1].function.partition("@")[0])
            return wrapper[1] if wrapper else "other"
        for part, name in _INTERRUPTIONS.items():
            if frame.function.startswith("asm_") and part in frame.function:
                return name
    return "other"

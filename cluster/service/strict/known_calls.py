"""What is known of the standard library and of common packages: which calls leave the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_RULES: Final[dict[str, tuple[str, ...]]] = {
    "wall-clock": (
        *("time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter"),
        *("time.perf_counter_ns", "time.process_time", "time.process_time_ns", "time.thread_time", "time.sleep"),
        *("time.thread_time_ns", "time.clock_gettime", "time.clock_gettime_ns", "time.localtime", "time.mktime"),
        *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
        *("pendulum.now", "arrow.now", "arrow.utcnow", "pandas.Timestamp.now", "pandas.Timestamp.utcnow"),
    ),
    "random": (
        *("random.", "secrets.", "numpy.random.", "os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4"),
        *("uuid.getnode", "uuid.uuid6", "uuid.uuid7", "ssl.RAND_bytes"),
    ),
    "environment": (
        *("os.environ", "os.getenv", "os.environb", "os.getpid", "os.getppid", "os.uname", "os.cpu_count"),
        *("os.getcwd", "os.getlogin", "os.getuid", "platform.", "sys.argv", "locale.", "getpass.", "resource."),
        *("socket.gethostname", "socket.getfqdn", "sys.getsizeof", "sys.getrefcount", "psutil.", "os.getloadavg"),
    ),
    "file": (
        *("open", "io.open", "os.open", "os.read", "os.write", "os.listdir", "os.scandir", "os.walk", "os.stat"),
        *("os.remove", "os.unlink", "os.rename", "os.replace", "os.mkdir", "os.makedirs", "os.rmdir", "shutil."),
        *("os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.getsize", "os.path.getmtime", "tempfile."),
        *("glob.", "sqlite3.connect", "shelve.open", "dbm.open", "mmap.mmap", "pathlib.Path.cwd", "pathlib.Path.home"),
        *("aiofiles.", "input", "fileinput."),
    ),
    "network": (
        *("socket.", "http.client.", "urllib.request.", "requests.", "httpx.", "aiohttp.", "urllib3.", "smtplib."),
        *("ftplib.", "redis.", "psycopg.", "psycopg2.", "boto3.", "kafka.", "aiokafka.", "websockets.", "grpc."),
    ),
    "process": (
        *("subprocess.", "os.system", "os.popen", "os.fork", "os.execv", "os.execve", "os.execvp", "os.spawnv"),
        *("os.kill", "multiprocessing.", "signal.", "sys.exit", "os._exit", "exit", "quit", "os.abort"),
    ),
    "thread": (
        *("threading.Thread", "threading.Timer", "threading.get_ident", "threading.get_native_id", "_thread."),
        *("threading.current_thread", "threading.active_count", "concurrent.futures.", "sched."),
    ),
    "event-loop": ("asyncio.", "anyio.", "trio.", "uvloop."),
    "object-identity": ("id",),
    "float-libm": tuple(
        f"{module}.{name}"
        for module in ("math", "cmath", "numpy")
        for name in (
            *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "expm1", "exp2"),
            *("log", "log2", "log10", "log1p", "pow", "hypot", "gamma", "lgamma", "erf", "erfc", "cbrt", "dist"),
        )
    ),
    "garbage-collection": ("weakref.", "gc."),
    "pickle": ("pickle.dumps", "pickle.dump", "marshal.dumps", "dill.dumps", "cloudpickle.dumps"),
}

_EXACT: Final = {name: rule for rule, names in _RULES.items() for name in names if not name.endswith(".")}
_PREFIXES: Final = {name: rule for rule, names in _RULES.items() for name in names if name.endswith(".")}

_HARMLESS: Final = frozenset(
    {
        *("asyncio.CancelledError", "asyncio.TimeoutError", "socket.AF_INET", "platform.python_version", "http.client"),
        *("requests.exceptions", "concurrent.futures.TimeoutError", "subprocess.CalledProcessError", "locale.Error"),
        *("socket.error", "signal.Signals", "socket.timeout", "sqlite3.connect.Error"),
    }
)

_PATH_METHODS: Final = frozenset(
    {
        *("read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob", "glob", "exists", "is_file"),
        *("is_dir", "stat", "unlink", "mkdir", "touch", "open", "rename", "replace", "rmdir"),
    }
)
"""Methods of `pathlib.Path` that go to the disk."""

SEEDED_IF_GIVEN: Final = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"})
"""Generators that are deterministic with an argument."""

CLOCK_UNLESS_GIVEN: Final = {"time.gmtime": 1, "time.strftime": 2, "time.asctime": 1, "time.ctime": 1}
"""Functions that read the clock where the time is not given: with how many arguments it is."""


def rule_of_call(name: str, argument_count: int) -> str | None:
    """Return which rule forbids a call of the function with this full name; None if none does."""
    if name in SEEDED_IF_GIVEN:
        return None if argument_count else "random"
    if name in CLOCK_UNLESS_GIVEN:
        return None if argument_count >= CLOCK_UNLESS_GIVEN[name] else "wall-clock"
    return rule_of_name(name)


def rule_of_name(name: str) -> str | None:
    """Return which rule forbids the function or value with this full name; None if none does."""
    if name in _HARMLESS or name in SEEDED_IF_GIVEN or name in CLOCK_UNLESS_GIVEN:
        return None
    parts = name.split(".")
    if parts[:2] == ["pathlib", "Path"] and parts[-1] in _PATH_METHODS:
        return "file"
    for count in range(len(parts), 0, -1):
        rule = _EXACT.get(".".join(parts[:count])) if count == len(parts) or parts[0] == "os" else None
        rule = rule or (_PREFIXES.get(".".join(parts[:count]) + ".") if count < len(parts) else None)
        if rule is not None:
            return rule
    return None


def full_names() -> Iterable[str]:
    """The full names of functions and values that a rule forbids one by one."""
    return _EXACT.keys()

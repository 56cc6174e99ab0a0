"""A Spark session for notebooks and scripts: quiet, on loopback, in UTC."""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from ...service_api.errors import ConfigurationError
from ...service_api.operating_system import optional_function
from ...service_api.processors import count_processors
from .java import ensure_java

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

JVM_LOG: Final = "spark.trimaran.jvmLog"
"""The setting of a session that says which file holds what its JVM and its workers print. Unless somebody sets it, that
is a new one, which is gone when this process has ended in order."""

_GIB: Final = 1 << 30
_LOOPBACK: Final = "127.0.0.1"
_END_TIMEOUT_S: Final = 30
_SQL_SETTINGS: Final = {"spark.sql.session.timeZone": "UTC"}


def create_session(
    app_name: str = "trimaran", *, master: str | None = None, config: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or connect to where `SPARK_REMOTE` or the setting `spark.remote` says.

    `master` is `local[*]` unless told or set in `config`, which goes before every setting of ours: UTC, as many shuffle
    partitions as cores, no web UI, a driver on loopback with a quarter of the memory (1 to 4 GiB). What the JVM prints
    goes to the file that `spark.conf.get("spark.trimaran.jvmLog")` names; set it in `config` to keep that file.

    With a session already running that one is returned, with the settings of `config` made in it.

    Raises:
        ConfigurationError: no pyspark, no Java, Spark does not start, or a session runs that cannot be given what
            `master` or `config` ask for.
    """
    from pyspark.sql import SparkSession

    wanted = dict(config or {})
    if master is not None:
        wanted["spark.master"] = master
    running = SparkSession.getActiveSession()
    if running is not None:
        return _adapt(running, wanted)
    remote = wanted.pop("spark.remote", os.environ.get("SPARK_REMOTE"))
    if remote is not None:
        return _connect(remote, app_name, wanted)
    _start_jvm(app_name, wanted)
    return SparkSession.builder.getOrCreate()


def end_jvm() -> None:
    """End the JVM that Spark keeps after `spark.stop()`, and wait for it; does nothing where there is none.

    The next session gets one of its own, with the memory and the log that it asks for. Not below `spark-submit`, whose
    JVM is not this process's.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=_END_TIMEOUT_S)


def _adapt(running: SparkSession, wanted: Mapping[str, str]) -> SparkSession:
    """Make settings in a session that runs; what only holds from the start must be so already."""
    for key, value in wanted.items():
        current = running.conf.get(key, None)
        if current == value:
            continue
        if not running.conf.isModifiable(key):
            raise ConfigurationError(
                f"a Spark session runs already, and this is set when it starts: {key}={value!r} "
                f"expected {current!r}, or spark.stop() first"
            )
        running.conf.set(key, value)
    return running


def _connect(remote: str, app_name: str, wanted: Mapping[str, str]) -> SparkSession:
    """Open a session of Spark Connect: settings of the server are the server's."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote).appName(app_name)
    for key, value in (_SQL_SETTINGS | dict(wanted)).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _start_jvm(app_name: str, wanted: Mapping[str, str]) -> None:
    """Start the JVM with its output in a file, and the context in it.

    Spark's own start leaves the JVM this process's stderr, which notebooks copy into their cells. Below
    `spark-submit` the JVM is there already, and what it was started with goes before our settings.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        SparkContext._ensure_initialized()  # a SparkConf then knows what was submitted
    else:
        end_jvm()
        os.environ["JAVA_HOME"] = str(ensure_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = wanted.get("spark.master", "local[*]")
    conf = SparkConf()
    for key, value in _start_settings(app_name, master).items():
        conf.setIfMissing(key, value)
    for key, value in wanted.items():
        conf.set(key, value)
    if submitted:
        SparkContext(conf=conf)
        return
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    is_kept = conf.contains(JVM_LOG)
    with _open_log(conf) as log:
        try:
            gateway = launch_gateway(conf, popen_kwargs={"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise ConfigurationError(f"Spark did not start: expected a reason in {log.name}") from error
    SparkContext(conf=conf, gateway=gateway)
    if not is_kept:
        atexit.register(Path(log.name).unlink, missing_ok=True)


def _open_log(conf: SparkConf) -> IO[bytes]:
    """Open the file that is set for what the JVM prints, or a new one, and set that."""
    name = conf.get(JVM_LOG)
    if name is not None:
        try:
            return Path(name).open("ab")
        except OSError as error:
            raise ConfigurationError(f"{JVM_LOG}={name!r} expected a file that can be written: {error}") from error
    log = tempfile.NamedTemporaryFile(prefix="trimaran-spark-", suffix=".log", delete=False)  # noqa: SIM115
    conf.set(JVM_LOG, log.name)
    return log


def _start_settings(app_name: str, master: str) -> dict[str, str]:
    """Collect the settings that hold unless somebody says otherwise."""
    settings = _SQL_SETTINGS | {
        "spark.app.name": app_name,
        "spark.master": master,
        "spark.driver.memory": f"{_driver_memory_gib()}g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if hasattr(socket, "AF_UNIX"):
        # Rows come from Python to the JVM through a socket; this kind takes a tenth less of the JVM's processor time.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master)
    if local is not None:
        cores = count_processors() if local[1] == "*" else int(local[1] or 1)
        settings["spark.sql.shuffle.partitions"] = str(cores)
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
    return settings


def _driver_memory_gib() -> int:
    """Return a quarter of the machine's memory, from 1 to 4 GiB, or 2 where the system does not tell.

    In local mode the driver is also the executor.
    """
    sysconf = optional_function("sysconf")
    if sysconf is None:  # Windows
        return 2
    memory = int(sysconf("SC_PHYS_PAGES")) * int(sysconf("SC_PAGE_SIZE"))
    return max(1, min(4, memory // 4 // _GIB))

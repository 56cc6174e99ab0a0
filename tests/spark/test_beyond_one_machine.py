"""Executors in other processes that have not installed Trimaran: a standalone cluster, and Spark Connect.

Their Python has numpy, pyarrow, fsspec and what Spark brings, and nothing else; see `processes.make_bare_python`.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.spark.processes import SPARK_HOME, bare_environment, make_bare_python, run_job, run_server
from tests.unit.archive.streams import extract_sample
from trimaran import archive

pytestmark = pytest.mark.slow

JOB = Path(__file__).with_name("beyond_one_machine.py")

FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""These programs are short, and most of their time is Java warming up."""


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("member")
    extract_sample("single-node", target)
    return target / "single-node" / "node0"


@pytest.fixture(scope="module")
def truth(member: Path) -> list[list[Any]]:
    """How many frames of each template the log has."""
    column = archive.frames(member, recording_id=0, columns=["template_id"]).read_all().column("template_id")
    return sorted(([template_id, count] for template_id, count in Counter(column.to_pylist()).items()), key=str)


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    return make_bare_python(tmp_path / "bare")


@contextlib.contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """A master and two workers with one core and 768 MiB each; gives the master's URL."""
    program, environment = str(SPARK_HOME / "bin" / "spark-class"), bare_environment()
    place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with contextlib.ExitStack() as servers, ThreadPoolExecutor(2) as threads:

        def start_worker(number: int) -> None:
            size = ["--cores", "1", "--memory", "768m", "--work-dir", str(directory / f"work{number}")]
            command = [program, "org.apache.spark.deploy.worker.Worker", *place, *size, url]
            servers.enter_context(
                run_server(command, "Successfully registered with master", directory / f"worker{number}", environment)
            )

        command = [program, "org.apache.spark.deploy.master.Master", *place]
        said = run_server(command, r"Starting Spark master at (spark://\S+)", directory / "master", environment)
        url = servers.enter_context(said)[1]
        list(threads.map(start_worker, (1, 2)))
        yield url


@contextlib.contextmanager
def connect_server(directory: Path, python: Path) -> Iterator[str]:
    """A Spark Connect server whose Python is the one given; gives its URL."""
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": FIRST_COMPILER,
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *options]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *server]
    environment = bare_environment(PYSPARK_PYTHON=str(python), SPARK_DAEMON_MEMORY="768m")
    with run_server(command, r"Spark Connect server started at: (\S+:\d+)", directory / "server", environment) as said:
        yield f"sc://{said[1]}"


@pytest.mark.campaign
def test_a_standalone_cluster_reads_with_what_the_driver_ships(
    tmp_path: Path, member: Path, bare_python: Path, truth: list[list[Any]]
) -> None:
    with standalone_cluster(tmp_path) as url:
        config = {
            "spark.master": url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.task.maxFailures": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": FIRST_COMPILER,
            "spark.executor.extraJavaOptions": FIRST_COMPILER,
        }
        environment = bare_environment(PYTHONPATH=str(ROOT), PYSPARK_PYTHON=str(bare_python))
        found = run_job(JOB, json.dumps(config), str(member), environment=environment)

    assert "No module named 'trimaran'" in found["unshipped"]
    assert found["templates"] == truth
    assert sum(place["row_count"] for place in found["places"]) == sum(count for _, count in truth)
    works = {Path(place["directory"]).parents[1].name for place in found["places"]}
    assert works == {"work1", "work2"}
    assert {place["has_pydantic"] for place in found["places"]} == {False}
    assert all(".zip/trimaran/archive/" in place["module"] for place in found["places"])


@pytest.mark.campaign
def test_a_client_without_java_reads_a_url_on_a_connect_server_that_knows_nothing_of_trimaran(
    tmp_path: Path, member: Path, bare_python: Path, truth: list[list[Any]]
) -> None:
    """`local://` goes through fsspec, as a store would, and other processes see it, as they do not see `memory://`."""
    with connect_server(tmp_path, bare_python) as url:
        environment = bare_environment(PYTHONPATH=str(ROOT), PATH=str(tmp_path / "nothing"))
        del environment["JAVA_HOME"]
        found = run_job(JOB, json.dumps({"spark.remote": url}), f"local://{member}", environment=environment)

    assert found["session"] == "pyspark.sql.connect.session"
    assert "No module named 'trimaran'" in found["unshipped"]
    assert found["templates"] == truth
    assert all(".zip/trimaran/archive/" in place["module"] for place in found["places"])
    assert found["problems"] == []
    assert found["terms"] == [0]
    assert f"no archive.catalog in local://{member}/absent" in found["absent"]

"""The programs of docs/spark.md and of the README run as they are printed; only the directory is another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.places import ROOT
from tests.unit.archive.streams import extract_sample


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract_sample("single-node", tmp_path_factory.mktemp("docs")) / "node0"


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.usefixtures("spark")
def test_the_programs_of_the_page_run(member: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for program in blocks("docs/spark.md", "python"):
        assert "data/node-0" in program
        exec(program.replace("data/node-0", str(member)), names)
    filtered = names["morning"].count()  # type: ignore[attr-defined]  # a DataFrame

    output = capsys.readouterr().out
    assert "top 5" in output
    assert "|recording_id|position|reason|\n+------------+--------+------+\n+--" in output
    assert 0 < filtered < 1000


def test_the_statements_of_the_page_run(spark: SparkSession, member: Path) -> None:
    (text,) = blocks("docs/spark.md", "sql")
    view, query = text.replace("data/node-0", str(member)).split(";")[:2]

    spark.sql(view.replace("CREATE TEMPORARY", "CREATE OR REPLACE TEMPORARY"))

    (row,) = spark.sql(query).collect()
    assert tuple(row)[:2] == (0, 2042)


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_readme_runs(member: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block for block in blocks("README.md", "python") if "trimaran.archive.spark" in block]

    exec(program.replace("data/node-0", str(member)), {})

    assert "|                 0|         24|    1|" in capsys.readouterr().out
